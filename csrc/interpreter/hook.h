// The frame hook (PEP 523): which loop a new frame runs in.
#pragma once

#include "interpreter/control.h"

namespace alternator {

// Reference-counted: the hook is installed while somebody needs it, and chains to the evaluator it found.
void acquire_hook();
void release_hook();
bool hook_installed();

// A hook that only forwards, for measuring what any hook costs.
void set_idle_hook(bool on);

}  // namespace alternator
