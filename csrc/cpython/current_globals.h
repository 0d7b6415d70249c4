// The globals of the frame that runs, in whose name native code warns. May be included anywhere: it shows no internals.
#pragma once

#include "py/ref.h"

namespace alternator::cpython {

// Where the frame keeps them, borrowed; null: there is no frame.
PyObject** current_globals();

}  // namespace alternator::cpython
