// Adaptive pooling.
#include "fake/rules/rules.h"

#include <ATen/ops/_adaptive_avg_pool2d_ops.h>
#include <ATen/ops/_adaptive_avg_pool3d_ops.h>

namespace alternator::fake {
namespace {

using at::Tensor;

template <int64_t kDims>
Tensor adaptive_avg_pool(const Tensor& self, c10::SymIntArrayRef output_size) {
  TORCH_CHECK(self.dim() == kDims + 1 || self.dim() == kDims + 2, "adaptive_avg_pool: Expected ", kDims + 1, "D or ",
              kDims + 2, "D tensor, but got ", self.sizes());
  TORCH_CHECK(output_size.size() == kDims, "adaptive_avg_pool: output_size must have ", kDims, " elements");
  for (int64_t dim = self.dim() - kDims; dim < self.dim(); dim++)
    TORCH_CHECK(self.size(dim) > 0, "adaptive_avg_pool: Expected input to have non-zero size for non-batch dimensions");
  const Sizes pooled = concrete(output_size);
  Sizes sizes = sizes_of(self);
  std::copy(pooled.begin(), pooled.end(), sizes.end() - kDims);
  const bool follow_format = kDims == 2 && self.dim() == 4;
  return Maker().formatted(sizes, self.scalar_type(),
                           follow_format ? self.suggest_memory_format() : at::MemoryFormat::Contiguous);
}

}  // namespace

void add_pooling_rules(RuleRegistry& rules) {
  rules.add<at::_ops::_adaptive_avg_pool2d>(adaptive_avg_pool<2>);
  rules.add<at::_ops::_adaptive_avg_pool3d>(adaptive_avg_pool<3>);
}

}  // namespace alternator::fake
