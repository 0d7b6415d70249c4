// The globals of the running frame, to which native code attributes its warnings. May be included anywhere: it exposes
// no internals.
#pragma once

#include "py/ref.h"

namespace alternator::cpython {

// The address of the frame's globals pointer, which is borrowed; null: there is no frame.
PyObject** current_globals();

}  // namespace alternator::cpython
