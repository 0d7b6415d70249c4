// Calls of native code that the natives table allows.
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

Ref call_native(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);

}  // namespace alternator::trace
