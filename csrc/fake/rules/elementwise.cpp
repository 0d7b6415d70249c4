// Elementwise operators without a C++ Meta kernel, and dropout.
#include "fake/rules/rules.h"

#include <ATen/ExpandUtils.h>
#include <ATen/NativeFunctions.h>
#include <ATen/ScalarOps.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/_foreach_addcdiv_ops.h>
#include <ATen/ops/_foreach_addcmul_ops.h>
#include <ATen/ops/abs_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/angle_ops.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/complex_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/floor_divide_ops.h>
#include <ATen/ops/hardswish_ops.h>
#include <ATen/ops/hardtanh_ops.h>
#include <ATen/ops/isnan_ops.h>
#include <ATen/ops/logical_not_ops.h>
#include <ATen/ops/logit_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/polar_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/rsub_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/where_ops.h>

namespace alternator::fake {
namespace {

using at::Tensor;

at::ScalarType or_floating(at::ScalarType type) {
  return c10::isIntegralType(type, /*includeBool=*/true) ? c10::get_default_dtype_as_scalartype() : type;
}

Tensor relu(const Tensor& self) {
  TORCH_CHECK(self.scalar_type() != at::kBool, "Boolean inputs not supported for relu");
  return Maker().like(self);
}
Tensor& relu_(Tensor& self) {
  TORCH_CHECK(self.scalar_type() != at::kBool, "Boolean inputs not supported for relu");
  return self;
}
Tensor hardswish(const Tensor& self) { return Maker().like(self); }
Tensor hardtanh(const Tensor& self, const at::Scalar&, const at::Scalar&) { return Maker().like(self); }
Tensor isnan(const Tensor& self) { return Maker().like(self, at::kBool); }
Tensor logit(const Tensor& self, std::optional<double>) { return Maker().like(self, or_floating(self.scalar_type())); }
Tensor angle(const Tensor& self) {
  const at::ScalarType type = self.scalar_type();
  return Maker().like(self, c10::isComplexType(type) ? c10::toRealValueType(type) : or_floating(type));
}
Tensor abs(const Tensor& self) {
  const at::ScalarType type = self.scalar_type();
  return Maker().like(self, c10::isComplexType(type) ? c10::toRealValueType(type) : type);
}
Tensor logical_not(const Tensor& self) { return Maker().like(self, at::kBool); }
Tensor& bernoulli_(Tensor& self, double p, std::optional<at::Generator>) {
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  return self;
}

// The composite of an in-place operator runs on meta tensors, whose kernel for a tensor and a scalar is a Python one.
Tensor number(const at::Scalar& value) { return at::native::wrapped_scalar_tensor(value); }
Tensor& add_scalar_(Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  return at::_ops::add__Tensor::call(self, number(other), alpha);
}
Tensor& sub_scalar_(Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  return at::_ops::sub__Tensor::call(self, number(other), alpha);
}
Tensor& mul_scalar_(Tensor& self, const at::Scalar& other) { return at::_ops::mul__Tensor::call(self, number(other)); }
Tensor& div_scalar_(Tensor& self, const at::Scalar& other) { return at::_ops::div__Tensor::call(self, number(other)); }

// The scalars are given as a tensor: their values do not affect the metadata.
std::vector<at::Scalar> some_numbers(at::TensorList self, const Tensor& numbers) {
  TORCH_CHECK(numbers.is_contiguous(), "Expected scalars to be contiguous");
  TORCH_CHECK(numbers.dim() == 1, "Expected packed scalar Tensor to be of dimension 1. Got ", numbers.dim(),
              " instead.");
  TORCH_CHECK(numbers.size(0) == static_cast<int64_t>(self.size()),
              "Expected length of scalars to match input of length ", self.size(), " but got ", numbers.size(0),
              " instead.");
  const bool is_complex = c10::isComplexType(numbers.scalar_type());
  const at::Scalar number = is_complex ? at::Scalar(c10::complex<double>(1))
                            : c10::isIntegralType(numbers.scalar_type(), /*includeBool=*/true) ? at::Scalar(1)
                                                                                               : at::Scalar(1.0);
  return std::vector<at::Scalar>(self.size(), number);
}
template <class OfNumbers>
std::vector<Tensor> foreach_with_numbers(at::TensorList self, at::TensorList left, at::TensorList right,
                                         const Tensor& numbers) {
  return OfNumbers::call(self, left, right, some_numbers(self, numbers));
}
template <class OfNumbers>
void foreach_with_numbers_(at::TensorList self, at::TensorList left, at::TensorList right, const Tensor& numbers) {
  OfNumbers::call(self, left, right, some_numbers(self, numbers));
}

std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double, std::optional<bool>) {
  const Maker make;
  return {make.like(input), make.like(input, at::kBool)};
}

// torch's TensorIterator over the fakes, which report meta: broadcasting, strides and type as in eager.
Tensor binary(const Tensor& self, const Tensor& other) {
  const Maker make;
  Tensor output;
  {
    const AsMeta as_meta;
    at::TensorIterator iterator = at::TensorIterator::binary_op(output, self, other);
    output = iterator.output();
  }
  return make.adopt(output);
}
Tensor rsub(const Tensor& self, const Tensor& other, const at::Scalar&) { return binary(self, other); }

// Torch's composite writes into an empty tensor, whose new strides are those of the inputs.
Tensor complex_of_two(const Tensor& first, const Tensor& second) {
  const at::ScalarType type = first.scalar_type();
  TORCH_CHECK(type == second.scalar_type() && (type == at::kHalf || type == at::kFloat || type == at::kDouble),
              "Expected both inputs to be Half, Float or Double tensors but got ", type, " and ", second.scalar_type());
  const Maker make;
  const AsMeta as_meta;
  Tensor output;
  at::TensorIterator iterator = at::TensorIteratorConfig()
                                    .check_all_same_dtype(false)
                                    .declare_static_dtype_and_device(c10::toComplexType(type), c10::Device(c10::kMeta))
                                    .add_owned_output(output)
                                    .add_const_input(first)
                                    .add_const_input(second)
                                    .build();
  return make.adopt(iterator.output());
}

Tensor& where_out(const Tensor& condition, const Tensor& self, const Tensor& other, Tensor& output) {
  const auto sizes = at::infer_size(condition.sizes(), at::infer_size(self.sizes(), other.sizes()));
  if (output.sizes() != at::IntArrayRef(sizes)) output.resize_(sizes);
  return output;
}

Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  TORCH_CHECK(condition.scalar_type() == at::kBool || condition.scalar_type() == at::kByte,
              "where expected condition to be a boolean tensor, but got a tensor with dtype ", condition.scalar_type());
  const Maker make;
  const at::ScalarType type = at::native::result_type(self, other);
  const AsMeta as_meta;
  Tensor output;
  at::TensorIterator iterator = at::TensorIteratorConfig()
                                    .check_all_same_dtype(false)
                                    .declare_static_dtype_and_device(type, c10::Device(c10::kMeta))
                                    .add_owned_output(output)
                                    .add_const_input(condition)
                                    .add_const_input(self)
                                    .add_const_input(other)
                                    .build();
  return make.adopt(iterator.output());
}

void check_mask(const Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_fill_ only supports boolean masks, but got mask with dtype ",
              mask.scalar_type());
}

// The copy that is filled is contiguous, whatever the layout of the tensor.
Tensor masked_fill(const Maker& make, const Tensor& self, const Tensor& mask) {
  check_mask(mask);
  return make.contiguous(at::infer_size(self.sizes(), mask.sizes()), self.scalar_type());
}
Tensor masked_fill_scalar(const Tensor& self, const Tensor& mask, const at::Scalar&) {
  return masked_fill(Maker(), self, mask);
}
Tensor masked_fill_tensor(const Tensor& self, const Tensor& mask, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  return masked_fill(Maker(), self, mask);
}
Tensor& masked_fill_scalar_(Tensor& self, const Tensor& mask, const at::Scalar&) {
  check_mask(mask);
  const auto sizes = at::infer_size(self.sizes(), mask.sizes());
  TORCH_CHECK(self.sizes() == at::IntArrayRef(sizes), "output with shape ", self.sizes(),
              " doesn't match the broadcast shape ", at::IntArrayRef(sizes));
  return self;
}

}  // namespace

void add_elementwise_rules(RuleRegistry& rules) {
  rules.add<at::_ops::relu>(relu);
  rules.add<at::_ops::relu_>(relu_);
  rules.add<at::_ops::hardswish>(hardswish);
  rules.add<at::_ops::hardtanh>(hardtanh);
  rules.add<at::_ops::isnan>(isnan);
  rules.add<at::_ops::logit>(logit);
  rules.add<at::_ops::angle>(angle);
  rules.add<at::_ops::abs>(abs);
  rules.add<at::_ops::logical_not>(logical_not);
  rules.add<at::_ops::bernoulli__float>(bernoulli_);
  rules.add<at::_ops::add__Scalar>(add_scalar_);
  rules.add<at::_ops::sub__Scalar>(sub_scalar_);
  rules.add<at::_ops::mul__Scalar>(mul_scalar_);
  rules.add<at::_ops::div__Scalar>(div_scalar_);
  rules.add<at::_ops::_foreach_addcdiv_Tensor>(foreach_with_numbers<at::_ops::_foreach_addcdiv_ScalarList>);
  rules.add<at::_ops::_foreach_addcdiv__Tensor>(foreach_with_numbers_<at::_ops::_foreach_addcdiv__ScalarList>);
  rules.add<at::_ops::_foreach_addcmul_Tensor>(foreach_with_numbers<at::_ops::_foreach_addcmul_ScalarList>);
  rules.add<at::_ops::_foreach_addcmul__Tensor>(foreach_with_numbers_<at::_ops::_foreach_addcmul__ScalarList>);
  rules.add<at::_ops::native_dropout>(native_dropout);
  rules.add<at::_ops::floor_divide>(binary);
  rules.add<at::_ops::rsub_Tensor>(rsub);
  rules.add<at::_ops::complex>(complex_of_two);
  rules.add<at::_ops::polar>(complex_of_two);
  rules.add<at::_ops::where_self>(where);
  rules.add<at::_ops::where_self_out>(where_out);
  rules.add<at::_ops::masked_fill_Scalar>(masked_fill_scalar);
  rules.add<at::_ops::masked_fill_Tensor>(masked_fill_tensor);
  rules.add<at::_ops::masked_fill__Scalar>(masked_fill_scalar_);
}

}  // namespace alternator::fake
