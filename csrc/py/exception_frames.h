// The frames that an exception's traceback keeps alive.
#pragma once

#include "py/ref.h"

namespace alternator {

// Clears the locals of these frames, innermost first, and those of the exception's cause and context. A running frame
// is left alone. Destructors may run user code.
void end_frames(Borrowed exception, int depth = 0);

}  // namespace alternator
