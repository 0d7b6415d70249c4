// Tensor hooks.
#pragma once

#include "py/error.h"

#include <string>

namespace alternator::trace {

// Whether it is what register_hook returned in a trace.
bool is_hook_handle(Borrowed object);

int init_hooks();

class Tracer;
// No hook may observe a gradient that flows to a pre-existing tensor: neither one on the tensor nor one on its
// accumulation. That is guarded; `name` is the call that computes the gradient.
void guard_accumulation(Tracer& tracer, Borrowed leaf, const std::string& name);

}  // namespace alternator::trace
