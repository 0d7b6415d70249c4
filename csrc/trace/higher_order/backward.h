// x.backward() and torch.autograd.backward() inside the traced function.
#pragma once

#include "py/ref.h"

#include <string>

namespace alternator::trace {

class Tracer;

bool is_backward(const Tracer& t, Borrowed callable);
Ref call_backward(Tracer& t, Borrowed callable, const std::string& name, PyObject* const* arguments, size_t positional,
                  Borrowed keyword_names);

}  // namespace alternator::trace
