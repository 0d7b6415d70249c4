// The frames that an exception holds.
#pragma once

#include "py/ref.h"

namespace alternator {

// They lose their variables, innermost first; so do those of what was handled meanwhile. One that runs is left alone.
// Runs code: that of what dies with them.
void end_frames(Borrowed exception, int depth = 0);

}  // namespace alternator
