// TODO
#pragma once
#include <string>

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

// torch.tensor(n) and torch.tensor([n, 1]) (symbol_tensors.cpp). Null: it is no such call.
Ref tensor_of_symbols(Tracer& t, const std::string& name, PyObject* const* arguments, size_t positional,
                      Borrowed keyword_names);

}  // namespace alternator::trace
