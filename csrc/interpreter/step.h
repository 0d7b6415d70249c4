// Stepping: a stopped chain executes one instruction concretely, and stops again.
#pragma once

#include "interpreter/frame_state.h"

namespace alternator {

// Continues the chain through its next instruction, and then to the first instruction boundary where it can be stopped
// again, which is never in a generator or class body. True: it stopped there, and `stopped` (empty before) is its new
// state. False: it finished with `result`, or raised.
bool step(Chain& chain, Chain* stopped, Ref* result);

}  // namespace alternator
