// TODO
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

struct Arm;
// torch.cond: both branches are traced, each as its own subgraph (cond.cpp).
Ref call_cond(Tracer& t, PyObject* const* arguments, size_t count);
Arm trace_arm(Tracer& t, const char* what, Borrowed function, Borrowed operands, bool fresh = false);

}  // namespace alternator::trace
