// Between tensors and numpy arrays: x.numpy(), numpy.asarray(x), torch.from_numpy(a), torch.tensor(a).
#pragma once

#include "trace/core/call.h"

#include <ATen/core/Tensor.h>

#include <string>

namespace alternator::trace {

class Tracer;

// An example array: a real array of zeros that numpy treats like the array of such a tensor.
Ref make_example_array(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type);
// The torch.dtype of an array. Null: torch has no such dtype.
Ref torch_type(Tracer& t, Borrowed array);

// x.numpy(), or numpy.asarray(x): a symbolic array. Null: x is not a tensor whose array's layout is known.
Ref array_of_tensor(Tracer& t, Borrowed callable, Borrowed tensor);
// Null: the call is not x.numpy().
Ref numpy_of_tensor(Tracer& t, const Call& call);

// torch.from_numpy(array), torch.as_tensor(array), torch.tensor(array) of a concrete array. Null: it is no such call.
Ref tensor_of_array(Tracer& t, const Call& call, const std::string& name);
// ... of a symbolic array.
Ref tensor_of_symbolic(Tracer& t, const Call& call, const std::string& name);

}  // namespace alternator::trace
