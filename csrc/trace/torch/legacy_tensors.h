// Constructors of tensors from before torch.tensor(), recorded as calls of the modern functions.
#pragma once

#include "py/ref.h"
#include "trace/torch/tensor_members.h"

namespace alternator::trace {

class Tracer;

// x.new_tensor([1, 2]) and x.new([1, 2]). Null: it is no such call.
Ref new_from_data(Tracer& t, Borrowed callable, MemberFlags method, PyObject* const* arguments, size_t positional,
                  Borrowed keyword_names);
// isinstance(tensor, torch.FloatTensor).
bool is_of_tensor_type(Tracer& t, Borrowed tensor, Borrowed type);

}  // namespace alternator::trace
