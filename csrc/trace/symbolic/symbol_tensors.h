// Tensors whose data are unbacked symbols.
#pragma once

#include "py/ref.h"

#include <string>

namespace alternator::trace {

class Tracer;

// torch.tensor(n) and torch.tensor([n, 1]). Null: it is no such call.
Ref tensor_of_symbols(Tracer& t, const std::string& name, PyObject* const* arguments, size_t positional,
                      Borrowed keyword_names);

}  // namespace alternator::trace
