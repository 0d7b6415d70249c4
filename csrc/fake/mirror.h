// Which pre-existing tensors can be faked.
#pragma once

#include <ATen/core/Tensor.h>

namespace alternator::fake {

// Why this tensor cannot be faked; null if it can.
const char* cannot_mirror(const at::Tensor& real);
// Whether a backward pass from this fake would reach operators that ran before the trace.
bool leads_outside(const at::Tensor& fake);

}  // namespace alternator::fake
