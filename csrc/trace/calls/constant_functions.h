// torch.compiler.assume_constant_result.
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

Ref call_constant(Tracer& t, Borrowed function, PyObject* const* arguments, size_t positional, Borrowed keyword_names);

}  // namespace alternator::trace
