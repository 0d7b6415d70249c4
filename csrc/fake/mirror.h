// Which tensors of the outside world have stand-ins.
#pragma once

#include <ATen/core/Tensor.h>

namespace alternator::fake {

// Why there is no stand-in for this tensor; null if there is.
const char* cannot_mirror(const at::Tensor& real);
// Whether a backward pass from this stand-in would come to operators that ran before the trace.
bool leads_outside(const at::Tensor& fake);

}  // namespace alternator::fake
