// Copies, conversions and fills.
#include "fake/fake_errors.h"
#include "fake/rules/rules.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/zero_ops.h>

namespace alternator::fake {
namespace {

using at::Tensor;

Tensor copy_of(const Maker& make, const Tensor& self, at::ScalarType dtype, std::optional<at::MemoryFormat> format) {
  const at::MemoryFormat chosen = format.value_or(at::MemoryFormat::Preserve);
  return chosen == at::MemoryFormat::Preserve ? make.like(self, dtype) : make.formatted(self.sizes(), dtype, chosen);
}

Tensor clone(const Tensor& self, std::optional<at::MemoryFormat> format) {
  const Maker make;
  return copy_of(make, self, self.scalar_type(), format);
}

Tensor to_copy(const Tensor& self, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
               std::optional<at::Device>, std::optional<bool>, bool, std::optional<at::MemoryFormat> format) {
  if (layout.value_or(at::kStrided) != at::kStrided)
    fail(FailureKind::Unsupported, "aten::_to_copy", "a sparse tensor cannot be faked");
  const Maker make;
  return copy_of(make, self, dtype.value_or(self.scalar_type()), format);
}

Tensor& copy_(Tensor& self, const Tensor& source, bool) {
  // Raises eager's error if the shapes cannot be broadcast.
  if (self.sizes() != source.sizes()) {
    const auto sizes = at::infer_size(self.sizes(), source.sizes());
    TORCH_CHECK(self.sizes() == at::IntArrayRef(sizes), "output with shape ", self.sizes(),
                " doesn't match the broadcast shape ", at::IntArrayRef(sizes));
  }
  return self;
}

Tensor& zero_(Tensor& self) { return self; }
Tensor& fill_scalar_(Tensor& self, const at::Scalar&) { return self; }
Tensor& fill_tensor_(Tensor& self, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.dim(),
              " dimensions.");
  return self;
}

}  // namespace

void add_copy_rules(RuleRegistry& rules) {
  rules.add<at::_ops::clone>(clone);
  rules.add<at::_ops::_to_copy>(to_copy);
  rules.add<at::_ops::copy_>(copy_);
  rules.add<at::_ops::zero_>(zero_);
  rules.add<at::_ops::fill__Scalar>(fill_scalar_);
  rules.add<at::_ops::fill__Tensor>(fill_tensor_);
}

}  // namespace alternator::fake
