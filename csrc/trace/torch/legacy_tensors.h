// TODO
#pragma once
#include <string>

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

// torch.Tensor(2, 3), torch.LongTensor([1]), torch.autograd.Variable(x). Null: it is no such call, or cannot be made.
Ref call_legacy_constructor(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t positional,
                            Borrowed keyword_names);
// x.new_tensor([1, 2]) and x.new([1, 2]). Null: it is no such call.
Ref new_from_data(Tracer& t, Borrowed callable, const std::string& name, PyObject* const* arguments, size_t positional,
                  Borrowed keyword_names);
// isinstance(tensor, torch.FloatTensor).
bool is_of_tensor_type(Tracer& t, Borrowed tensor, Borrowed type);

}  // namespace alternator::trace
