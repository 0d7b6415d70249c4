// Constructors of tensors from before torch.tensor(), recorded as calls of the modern functions.
#pragma once

#include "trace/core/call.h"
#include "trace/torch/tensor_members.h"

namespace alternator::trace {

class Tracer;

// x.new_tensor([1, 2]) and x.new([1, 2]). Null: it is no such call.
Ref new_from_data(Tracer& t, const Call& call, MemberFlags method);
// Arguments that are sizes: ints, or one torch.Size.
bool are_sizes(PyObject* const* arguments, size_t count);
// torch.FloatTensor and its like.
bool is_tensor_type(Borrowed object);
// isinstance(tensor, torch.FloatTensor).
bool is_of_tensor_type(Tracer& t, Borrowed tensor, Borrowed type);

}  // namespace alternator::trace
