// Members of torch.Tensor that mean more to the tracer than a node or a guarded fact (tensor_members.def): found by
// name where an attribute is read, by identity where a method is called.
#pragma once

#include "py/error.h"

#include <string_view>

namespace alternator::trace {

struct TensorMember {
  enum Flag : uint16_t {
    kUnguarded = 1 << 0,     // the tensor guard does not cover it
    kShowsMemory = 1 << 1,   // it exposes memory, which a fake has not
    kSharedFact = 1 << 2,    // all tensors of one storage share it
    kOffset = 1 << 3,        // Tensor.storage_offset
    kAutogradFact = 1 << 4,  // its result depends on the autograd state
    kGrad = 1 << 5,          // Tensor.grad
    kGradFn = 1 << 6,        // Tensor.grad_fn
    kOfFakesGraph = 1 << 7,  // it would expose the autograd graph of a fake
    kHook = 1 << 8,          // it registers a hook
    kNew = 1 << 9,           // Tensor.new
    kNewTensor = 1 << 10,    // Tensor.new_tensor
    kToList = 1 << 11,       // Tensor.tolist
  };
};
using MemberFlags = uint16_t;  // of TensorMember::Flag

MemberFlags member_flags(std::string_view attribute);
// Of a method of torch.Tensor, bound or not. 0 for any other callable.
MemberFlags method_flags(Borrowed callable);

}  // namespace alternator::trace
