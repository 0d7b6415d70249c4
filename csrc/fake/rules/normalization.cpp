// Layer, batch and group normalization.
#include "fake/rules/rules.h"

#include <ATen/AccumulateType.h>
#include <ATen/OpMathType.h>
#include <ATen/ops/_batch_norm_with_update_ops.h>
#include <ATen/ops/_native_batch_norm_legit_ops.h>
#include <ATen/ops/cudnn_batch_norm_ops.h>
#include <ATen/ops/native_batch_norm_backward_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>

namespace alternator::fake {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool given(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

// CPU kernels keep statistics in the input's type (or the parameters', if they differ); CUDA kernels in the
// accumulation type.
at::ScalarType statistics_type(const Tensor& input, const OptionalTensor& weight, c10::Device device) {
  if (!device.is_cpu()) return at::toAccumulateType(input.scalar_type(), device.type());
  if (given(weight) && weight->scalar_type() != input.scalar_type()) return weight->scalar_type();
  return input.scalar_type();
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm(const Tensor& input, c10::SymIntArrayRef normalized_shape,
                                                     const OptionalTensor& weight, const OptionalTensor& bias, double) {
  const Maker make;
  const auto normalized = concrete(normalized_shape);
  const int64_t axis = input.dim() - static_cast<int64_t>(normalized.size());
  TORCH_CHECK(!normalized.empty(), "Expected normalized_shape to be at least 1-dimensional");
  TORCH_CHECK(axis >= 0 && input.sizes().slice(axis) == at::IntArrayRef(normalized),
              "Given normalized_shape=", at::IntArrayRef(normalized), ", expected input with shape [*, ",
              at::IntArrayRef(normalized), "], but got input of size", input.sizes());
  for (const OptionalTensor* parameter : {&weight, &bias}) {
    TORCH_CHECK(!given(*parameter) || (*parameter)->sizes() == at::IntArrayRef(normalized),
                "Expected weight and bias to be of same shape as normalized_shape, but got ",
                given(*parameter) ? (*parameter)->sizes() : at::IntArrayRef(),
                " and normalized_shape = ", at::IntArrayRef(normalized));
  }
  Sizes statistics = sizes_of(input);
  std::fill(statistics.begin() + axis, statistics.end(), 1);
  const at::ScalarType type = statistics_type(input, weight, make.device());
  return {make.contiguous(input.sizes(), input.scalar_type()), make.contiguous(statistics, type),
          make.contiguous(statistics, type)};
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm_backward(const Tensor&, const Tensor& input,
                                                              c10::SymIntArrayRef normalized_shape, const Tensor&,
                                                              const Tensor&, const OptionalTensor& weight,
                                                              const OptionalTensor& bias, std::array<bool, 3> mask) {
  const Maker make;
  const auto normalized = concrete(normalized_shape);
  return {mask[0] ? make.contiguous(input.sizes(), input.scalar_type()) : Tensor(),
          mask[1] && given(weight) ? make.contiguous(normalized, weight->scalar_type()) : Tensor(),
          mask[2] && given(bias) ? make.contiguous(normalized, bias->scalar_type()) : Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> native_group_norm(const Tensor& input, const OptionalTensor& weight,
                                                     const OptionalTensor& bias, c10::SymInt batch,
                                                     c10::SymInt channels, c10::SymInt, int64_t groups, double) {
  const Maker make;
  const int64_t n = batch.expect_int(), c = channels.expect_int();
  TORCH_CHECK(c % groups == 0,
              "Expected number of channels in input to be divisible by num_groups, but got input of shape ",
              input.sizes(), " and num_groups=", groups);
  for (const OptionalTensor* parameter : {&weight, &bias}) {
    TORCH_CHECK(!given(*parameter) || ((*parameter)->dim() == 1 && (*parameter)->numel() == c),
                "Expected weight and bias to be vectors of size equal to the number of channels in input");
  }
  const at::MemoryFormat format = make.device().is_cpu() ? input.suggest_memory_format() : at::MemoryFormat::Contiguous;
  const at::ScalarType type = statistics_type(input, weight, make.device());
  const int64_t statistics[] = {n, groups};
  return {make.formatted(input.sizes(), input.scalar_type(), format), make.contiguous(statistics, type),
          make.contiguous(statistics, type)};
}

// The memory format of a batch norm's output on the CPU: the input's.
at::MemoryFormat batch_norm_format(const Tensor& input) { return input.suggest_memory_format(); }

std::tuple<Tensor, Tensor, Tensor> batch_norm(const Maker& make, const Tensor& input, const OptionalTensor& weight,
                                              bool statistics) {
  TORCH_CHECK(input.dim() >= 2, "batch norm expects an input of at least 2 dimensions");
  const int64_t channels = input.size(1);
  const at::ScalarType type = statistics_type(input, weight, make.device());
  const int64_t saved[] = {statistics ? channels : 0};
  return {make.formatted(input.sizes(), input.scalar_type(), batch_norm_format(input)), make.contiguous(saved, type),
          make.contiguous(saved, type)};
}

std::tuple<Tensor, Tensor, Tensor> native_batch_norm(const Tensor& input, const OptionalTensor& weight,
                                                     const OptionalTensor&, const OptionalTensor&,
                                                     const OptionalTensor&, bool training, double, double) {
  const Maker make;
  return batch_norm(make, input, weight, training);
}

std::tuple<Tensor, Tensor, Tensor> native_batch_norm_legit(const Tensor& input, const OptionalTensor& weight,
                                                           const OptionalTensor&, Tensor&, Tensor&, bool training,
                                                           double, double) {
  const Maker make;
  return batch_norm(make, input, weight, training);
}

std::tuple<Tensor, Tensor, Tensor> native_batch_norm_legit_no_stats(const Tensor& input, const OptionalTensor& weight,
                                                                    const OptionalTensor&, bool training, double,
                                                                    double) {
  const Maker make;
  return batch_norm(make, input, weight, training);
}

std::tuple<Tensor, Tensor, Tensor> native_batch_norm_backward(const Tensor&, const Tensor& input,
                                                              const OptionalTensor& weight, const OptionalTensor&,
                                                              const OptionalTensor&, const OptionalTensor&,
                                                              const OptionalTensor&, bool, double,
                                                              std::array<bool, 3> mask) {
  const Maker make;
  const int64_t channels[] = {input.size(1)};
  const at::ScalarType type = given(weight) ? weight->scalar_type() : statistics_type(input, weight, make.device());
  return {mask[0] ? make.formatted(input.sizes(), input.scalar_type(), batch_norm_format(input)) : Tensor(),
          mask[1] ? make.contiguous(channels, type) : Tensor(), mask[2] ? make.contiguous(channels, type) : Tensor()};
}

}  // namespace

void add_normalization_rules(RuleRegistry& rules) {
  rules.add<at::_ops::native_layer_norm>(native_layer_norm);
  rules.add<at::_ops::native_layer_norm_backward>(native_layer_norm_backward);
  rules.add<at::_ops::native_group_norm>(native_group_norm);
  rules.add<at::_ops::native_batch_norm>(native_batch_norm);
  rules.add<at::_ops::_native_batch_norm_legit>(native_batch_norm_legit);
  rules.add<at::_ops::_native_batch_norm_legit_no_stats>(native_batch_norm_legit_no_stats);
  rules.add<at::_ops::native_batch_norm_backward>(native_batch_norm_backward);
}

}  // namespace alternator::fake
