// Hooks on tensors.
#pragma once

#include "py/error.h"

#include <string>

namespace alternator::trace {

// What register_hook gave in a trace.
bool is_hook_handle(Borrowed object);

int init_hooks();

class Tracer;
// A gradient that goes to an outside tensor must not be seen by anybody on its way: no hook, neither on the tensor nor
// where it is accumulated. That is guarded; `name` is what computes it.
void guard_accumulation(Tracer& tracer, Borrowed leaf, const std::string& name);

}  // namespace alternator::trace
