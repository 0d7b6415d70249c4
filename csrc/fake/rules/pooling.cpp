// Adaptive pooling, and unpooling.
#include "fake/rules/rules.h"

#include <ATen/ops/_adaptive_avg_pool2d_ops.h>
#include <ATen/ops/_adaptive_avg_pool3d_ops.h>
#include <ATen/ops/max_unpool2d_ops.h>

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

Tensor max_unpool2d(const Tensor& self, const Tensor& indices, c10::SymIntArrayRef output_size) {
  TORCH_CHECK(indices.scalar_type() == at::kLong,
              "elements in indices should be type int64 but got: ", indices.scalar_type());
  TORCH_CHECK(output_size.size() == 2, "There should be exactly two elements (height, width) in output_size, but got ",
              output_size.size(), " elements.");
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4,
              "Input to max_unpooling2d should be a 3d or 4d Tensor, but got a tensor with ", self.dim(),
              " dimensions.");
  TORCH_CHECK(self.sizes() == indices.sizes(), "Expected shape of indices to be same as that of the input tensor (",
              self.sizes(), ") but got indices tensor with shape: ", indices.sizes());
  for (int64_t dim = 1; dim < self.dim(); dim++)
    TORCH_CHECK(self.size(dim) > 0, "max_unpooling2d(): Expected input to have non-zero size for non-batch dimensions,",
                " but got ", self.sizes(), " with dimension ", dim, " being empty.");
  const Sizes unpooled = concrete(output_size);
  Sizes sizes = sizes_of(self);
  std::copy(unpooled.begin(), unpooled.end(), sizes.end() - 2);
  const Maker make;
  const bool follow_format = self.dim() == 4 && make.device().is_cpu();
  return make.formatted(sizes, self.scalar_type(),
                        follow_format ? self.suggest_memory_format() : at::MemoryFormat::Contiguous);
}

}  // namespace

void add_pooling_rules(RuleRegistry& rules) {
  rules.add<at::_ops::_adaptive_avg_pool2d>(adaptive_avg_pool<2>);
  rules.add<at::_ops::_adaptive_avg_pool3d>(adaptive_avg_pool<3>);
  rules.add<at::_ops::max_unpool2d>(max_unpool2d);
}

}  // namespace alternator::fake
