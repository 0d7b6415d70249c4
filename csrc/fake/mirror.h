// Which tensors of the outside world have stand-ins.
#pragma once

#include <ATen/core/Tensor.h>

namespace alternator::fake {

// Why there is no stand-in for this tensor; null if there is.
const char* cannot_mirror(const at::Tensor& real);

}  // namespace alternator::fake
