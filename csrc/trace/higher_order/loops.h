// TODO
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

// while_loop, scan and associative_scan of torch._higher_order_ops (loops.cpp). Null: it is none of them.
Ref call_loop(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);

}  // namespace alternator::trace
