// Factory functions: zeros, full, empty_like, new_ones, rand and the like. Random ones draw nothing.
#include "fake/fake_errors.h"
#include "fake/rules/rules.h"

#include <ATen/native/TensorFactories.h>
#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <ATen/ops/full_like_ops.h>
#include <ATen/ops/full_ops.h>
#include <ATen/ops/new_empty_ops.h>
#include <ATen/ops/new_empty_strided_ops.h>
#include <ATen/ops/new_full_ops.h>
#include <ATen/ops/new_ones_ops.h>
#include <ATen/ops/new_zeros_ops.h>
#include <ATen/ops/ones_like_ops.h>
#include <ATen/ops/ones_ops.h>
#include <ATen/ops/rand_like_ops.h>
#include <ATen/ops/rand_ops.h>
#include <ATen/ops/randn_like_ops.h>
#include <ATen/ops/randn_ops.h>
#include <ATen/ops/zeros_like_ops.h>
#include <ATen/ops/zeros_ops.h>

namespace alternator::fake {
namespace {

using at::Tensor;
template <class T>
using Opt = std::optional<T>;
using Dtype = Opt<at::ScalarType>;
using LayoutArgument = Opt<at::Layout>;
using DeviceArgument = Opt<at::Device>;
using Pinned = Opt<bool>;
using Format = Opt<at::MemoryFormat>;

at::ScalarType or_default(Dtype dtype) { return dtype.value_or(c10::get_default_dtype_as_scalartype()); }

void check_layout(LayoutArgument layout) {
  if (layout.value_or(at::kStrided) != at::kStrided)
    fail(FailureKind::Unsupported, "", "a sparse tensor cannot be faked");
}

Tensor made(c10::SymIntArrayRef size, at::ScalarType dtype, LayoutArgument layout, Format format = std::nullopt) {
  check_layout(layout);
  const Maker make;
  const Sizes sizes = concrete(size);
  at::detail::check_size_nonnegative(sizes);
  const at::MemoryFormat chosen = format.value_or(at::MemoryFormat::Contiguous);
  TORCH_CHECK(chosen != at::MemoryFormat::Preserve,
              "'torch.preserve_format' memory format is only supported in `empty_like`");
  return make.formatted(sizes, dtype, chosen);
}

Tensor made_like(const Tensor& self, Dtype dtype, LayoutArgument layout, Format format) {
  check_layout(layout);
  const Maker make;
  const at::ScalarType type = dtype.value_or(self.scalar_type());
  const at::MemoryFormat chosen = format.value_or(at::MemoryFormat::Preserve);
  return chosen == at::MemoryFormat::Preserve ? make.like(self, type) : make.formatted(self.sizes(), type, chosen);
}

// torch.full: the type of the value, unless a dtype is given.
at::ScalarType full_type(const at::Scalar& value, Dtype dtype) {
  if (dtype.has_value()) return *dtype;
  const at::ScalarType type = value.type();
  if (type == at::kBool || type == at::kLong) return type;
  if (c10::isComplexType(type)) return c10::typeMetaToScalarType(c10::get_default_complex_dtype());
  return c10::get_default_dtype_as_scalartype();
}

Tensor empty(c10::SymIntArrayRef size, Dtype dtype, LayoutArgument layout, DeviceArgument, Pinned, Format format) {
  return made(size, or_default(dtype), layout, format);
}
Tensor plain(c10::SymIntArrayRef size, Dtype dtype, LayoutArgument layout, DeviceArgument, Pinned) {
  return made(size, or_default(dtype), layout);
}
Tensor generated(c10::SymIntArrayRef size, Opt<at::Generator>, Dtype dtype, LayoutArgument layout, DeviceArgument,
                 Pinned) {
  return made(size, or_default(dtype), layout);
}
Tensor full(c10::SymIntArrayRef size, const at::Scalar& value, Dtype dtype, LayoutArgument layout, DeviceArgument,
            Pinned) {
  return made(size, full_type(value, dtype), layout);
}
Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, Dtype dtype, LayoutArgument layout,
                     DeviceArgument, Pinned) {
  check_layout(layout);
  const Maker make;
  const Sizes sizes = concrete(size), strides = concrete(stride);
  at::detail::check_size_nonnegative(sizes);
  TORCH_CHECK(sizes.size() == strides.size(), "mismatch in length of strides and shape");
  return make.strided(sizes, strides, or_default(dtype));
}

Tensor like(const Tensor& self, Dtype dtype, LayoutArgument layout, DeviceArgument, Pinned, Format format) {
  return made_like(self, dtype, layout, format);
}
Tensor full_like(const Tensor& self, const at::Scalar&, Dtype dtype, LayoutArgument layout, DeviceArgument, Pinned,
                 Format format) {
  return made_like(self, dtype, layout, format);
}

Tensor new_plain(const Tensor& self, c10::SymIntArrayRef size, Dtype dtype, LayoutArgument layout, DeviceArgument,
                 Pinned) {
  return made(size, dtype.value_or(self.scalar_type()), layout);
}
Tensor new_full(const Tensor& self, c10::SymIntArrayRef size, const at::Scalar&, Dtype dtype, LayoutArgument layout,
                DeviceArgument, Pinned) {
  return made(size, dtype.value_or(self.scalar_type()), layout);
}
Tensor new_empty_strided(const Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride, Dtype dtype,
                         LayoutArgument layout, DeviceArgument device, Pinned pinned) {
  return empty_strided(size, stride, dtype.value_or(self.scalar_type()), layout, device, pinned);
}

}  // namespace

void add_factory_rules(RuleRegistry& rules) {
  rules.add<at::_ops::empty_memory_format>(empty);
  rules.add<at::_ops::zeros>(plain);
  rules.add<at::_ops::ones>(plain);
  rules.add<at::_ops::rand>(plain);
  rules.add<at::_ops::randn>(plain);
  rules.add<at::_ops::rand_generator>(generated);
  rules.add<at::_ops::randn_generator>(generated);
  rules.add<at::_ops::full>(full);
  rules.add<at::_ops::empty_strided>(empty_strided);
  rules.add<at::_ops::empty_like>(like);
  rules.add<at::_ops::zeros_like>(like);
  rules.add<at::_ops::ones_like>(like);
  rules.add<at::_ops::rand_like>(like);
  rules.add<at::_ops::randn_like>(like);
  rules.add<at::_ops::full_like>(full_like);
  rules.add<at::_ops::new_empty>(new_plain);
  rules.add<at::_ops::new_zeros>(new_plain);
  rules.add<at::_ops::new_ones>(new_plain);
  rules.add<at::_ops::new_full>(new_full);
  rules.add<at::_ops::new_empty_strided>(new_empty_strided);
}

}  // namespace alternator::fake
