#include "fake/rules/rules.h"

#include <ATen/ops/_shape_as_tensor_native.h>
#include <ATen/ops/_shape_as_tensor_ops.h>
#include <ATen/ops/one_hot_native.h>
#include <ATen/ops/one_hot_ops.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace alternator::fake {
namespace {

std::unordered_map<std::string, c10::KernelFunction>& all_rules() {
  static auto* rules = new std::unordered_map<std::string, c10::KernelFunction>;
  return *rules;
}

}  // namespace

void RuleRegistry::keep(std::string name, c10::KernelFunction rule) {
  all_rules().emplace(std::move(name), std::move(rule));
}

const c10::KernelFunction* find_rule(const std::string& op) {
  const auto found = all_rules().find(op);
  return found == all_rules().end() ? nullptr : &found->second;
}

at::Tensor Maker::permuted(at::IntArrayRef sizes, at::IntArrayRef layout, at::ScalarType dtype) const {
  Sizes strides{0};  // not (size, 0): GCC 12 then takes its inline storage for read before it is set
  strides.resize(sizes.size());
  int64_t expected = 1;
  for (auto dim = layout.rbegin(); dim != layout.rend(); ++dim) {
    strides[*dim] = expected;
    expected *= std::max<int64_t>(sizes[*dim], 1);
  }
  return strided(sizes, strides, dtype);
}

at::Tensor Maker::like(const at::Tensor& tensor, at::ScalarType dtype) const {
  if (tensor.is_non_overlapping_and_dense()) return strided(tensor.sizes(), tensor.strides(), dtype);
  // Dense in the order of the strides: torch's infer_dense_strides, which is TensorIterator's order.
  const auto strides = at::infer_dense_strides(tensor.sizes(), tensor.strides());
  return strided(tensor.sizes(), strides, dtype);
}

TORCH_LIBRARY_IMPL(aten, Fake, library) {
  RuleRegistry rules(library);
  add_attention_rules(rules);
  add_convolution_rules(rules);
  add_copy_rules(rules);
  add_elementwise_rules(rules);
  add_factory_rules(rules);
  add_fourier_rules(rules);
  add_indexing_rules(rules);
  add_linalg_rules(rules);
  add_normalization_rules(rules);
  add_pooling_rules(rules);
  add_reduction_rules(rules);
  add_direct_calls(rules);
}

namespace {

// one_hot is decomposed before autograd, in a way that reads data on the CPU. Only fakes dispatch here, and meta
// tensors, which have no data either.
at::Tensor one_hot_of_meta(c10::DispatchKeySet keys, const at::Tensor& self, int64_t classes) {
  if (as_fake(self) != nullptr) return DirectCall<at::_ops::one_hot>::call(keys, self, classes);
  return at::native::one_hot(self, classes);
}

// The same for _shape_as_tensor, which writes the shape into memory.
at::Tensor shape_of_meta(c10::DispatchKeySet keys, const at::Tensor& self) {
  if (as_fake(self) != nullptr) return DirectCall<at::_ops::_shape_as_tensor>::call(keys, self);
  return at::native::_shape_as_tensor(self);
}

TORCH_LIBRARY_IMPL(aten, AutogradMeta, library) {
  library.impl("one_hot", TORCH_FN(one_hot_of_meta));
  library.impl("_shape_as_tensor", TORCH_FN(shape_of_meta));
}

}  // namespace

}  // namespace alternator::fake
