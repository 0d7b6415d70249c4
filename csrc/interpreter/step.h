// Stepping: a stopped chain executes one instruction for real, and stops again.
#pragma once

#include "interpreter/frame_state.h"

namespace alternator {

// Continues the chain for the instruction that it stands before, and then as far as the first place where it could be
// stopped again: outside of generators and class bodies. True: it stopped there, and `stopped` (empty before) is what
// it is now. False: it finished with `result`, or raised.
bool step(Chain& chain, Chain* stopped, Ref* result);

}  // namespace alternator
