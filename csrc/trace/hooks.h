// Hooks on tensors.
#pragma once

#include "py/error.h"

namespace alternator::trace {

// What register_hook gave in a trace.
bool is_hook_handle(Borrowed object);

int init_hooks();

}  // namespace alternator::trace
