// Tensor operations of replay; the only part of it that uses torch's C++ API.
#pragma once

#include "py/error.h"

namespace alternator::replay {

bool is_tensor(Borrowed object);
// An unbacked symbol: an output of the graph as well.
bool is_symbol(Borrowed object);
Borrowed class_of_symbol(Borrowed object);  // int or float
// A torch.Generator: one that the graph makes is an output of it.
bool is_generator(Borrowed object);

struct TensorTraits {
  bool plain_type;      // exactly torch.Tensor
  bool wants_gradient;  // a leaf that requires grad
};
TensorTraits tensor_traits(Borrowed fake);

// A graph output with the type and the requires_grad of its fake: backends return plain tensors.
Ref adopt_output(Borrowed output, Borrowed type, bool wants_gradient);

}  // namespace alternator::replay
