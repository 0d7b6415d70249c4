// Reductions without a C++ Meta kernel.
#include "fake/rules/rules.h"

#include <ATen/ops/max_ops.h>
#include <ATen/ops/min_ops.h>
#include <ATen/ops/prod_ops.h>
#include <ATen/ops/std_mean_ops.h>
#include <ATen/ops/std_ops.h>
#include <ATen/ops/var_mean_ops.h>
#include <ATen/ops/var_ops.h>

namespace alternator::fake {
namespace {

using at::Tensor;
using Correction = std::optional<at::Scalar>;

template <const char* kName>
Tensor extremum(const Tensor& self) {
  TORCH_CHECK(self.numel() > 0, kName,
              "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the "
              "'dim' argument.");
  return Maker().contiguous({}, self.scalar_type());
}
constexpr char kMax[] = "max", kMin[] = "min";

Sizes reduced(const Tensor& self, at::OptionalIntArrayRef dims, bool keepdim) {
  c10::SmallVector<bool, 8> gone(self.dim(), !dims.has_value() || dims->empty());
  if (dims.has_value()) {
    for (const int64_t dim : *dims) {
      const int64_t wrapped = wrap(dim, self.dim());
      if (self.dim() == 0) continue;
      TORCH_CHECK(!gone[wrapped], "dim ", wrapped, " appears multiple times in the list of dims");
      gone[wrapped] = true;
    }
  }
  Sizes sizes;
  for (int64_t dim = 0; dim < self.dim(); dim++) {
    if (!gone[dim])
      sizes.push_back(self.size(dim));
    else if (keepdim)
      sizes.push_back(1);
  }
  return sizes;
}

// Variance of a complex tensor is real; its mean is not.
at::ScalarType spread_type(const Tensor& self) {
  const at::ScalarType type = self.scalar_type();
  TORCH_CHECK(c10::isFloatingType(type) || c10::isComplexType(type),
              "std and var only support floating point and complex dtypes");
  return c10::isComplexType(type) ? c10::toRealValueType(type) : type;
}

Tensor var(const Tensor& self, at::OptionalIntArrayRef dims, const Correction&, bool keepdim) {
  return Maker().contiguous(reduced(self, dims, keepdim), spread_type(self));
}

std::tuple<Tensor, Tensor> var_mean(const Tensor& self, at::OptionalIntArrayRef dims, const Correction&, bool keepdim) {
  const Maker make;
  const Sizes sizes = reduced(self, dims, keepdim);
  return {make.contiguous(sizes, spread_type(self)), make.contiguous(sizes, self.scalar_type())};
}

Tensor prod(const Tensor& self, std::optional<at::ScalarType> dtype) {
  const at::ScalarType type = self.scalar_type();
  return Maker().contiguous({}, dtype.value_or(c10::isIntegralType(type, /*includeBool=*/true) ? at::kLong : type));
}

}  // namespace

void add_reduction_rules(RuleRegistry& rules) {
  rules.add<at::_ops::max>(extremum<kMax>);
  rules.add<at::_ops::min>(extremum<kMin>);
  rules.add<at::_ops::var_correction>(var);
  rules.add<at::_ops::std_correction>(var);
  rules.add<at::_ops::var_mean_correction>(var_mean);
  rules.add<at::_ops::std_mean_correction>(var_mean);
  rules.add<at::_ops::prod>(prod);
}

}  // namespace alternator::fake
