// x.backward() and torch.autograd.backward() inside the traced function.
#pragma once

#include "trace/core/call.h"

#include <string>

namespace alternator::trace {

class Tracer;

bool is_backward(const Tracer& t, Borrowed callable);
Ref call_backward(Tracer& t, const Call& call, const std::string& name);

}  // namespace alternator::trace
