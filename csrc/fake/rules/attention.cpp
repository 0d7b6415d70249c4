// Scaled dot product attention. torch has chosen the implementation (_fused_sdp_choice) before these are called.
#include "fake/rules/rules.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_ops.h>

namespace alternator::fake {
namespace {

using at::Tensor;

constexpr int64_t kSequenceFirst[] = {0, 2, 1, 3};  // [batch, head, sequence, feature] laid out sequence before head

std::tuple<Tensor, Tensor> flash_for_cpu(const Tensor& query, const Tensor&, const Tensor&, double, bool,
                                         const std::optional<Tensor>&, std::optional<double>) {
  const Maker make;
  const int64_t batch = query.size(0), heads = query.size(1), length = query.size(2);
  const int64_t log_sizes[] = {batch, heads, length}, log_strides[] = {length * heads, 1, heads};
  return {make.like(query), make.strided(log_sizes, log_strides, at::toOpMathType(query.scalar_type()))};
}

std::tuple<Tensor, Tensor, Tensor> flash_for_cpu_backward(const Tensor&, const Tensor& query, const Tensor& key,
                                                          const Tensor& value, const Tensor&, const Tensor&, double,
                                                          bool, const std::optional<Tensor>&, std::optional<double>) {
  const Maker make;
  return {make.permuted(query.sizes(), kSequenceFirst, query.scalar_type()),
          make.permuted(key.sizes(), kSequenceFirst, key.scalar_type()),
          make.permuted(value.sizes(), kSequenceFirst, value.scalar_type())};
}

}  // namespace

void add_attention_rules(RuleRegistry& rules) {
  rules.add<at::_ops::_scaled_dot_product_flash_attention_for_cpu>(flash_for_cpu);
  rules.add<at::_ops::_scaled_dot_product_flash_attention_for_cpu_backward>(flash_for_cpu_backward);
}

}  // namespace alternator::fake
