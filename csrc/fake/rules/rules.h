// Our rules: operators whose metadata torch computes only in Python, slowly, or not at all.
//
// A rule is a function with the operator's C++ signature. It receives fakes only, checked and with a common device, and
// creates its outputs with `Maker`. It is called without boxing (see fake/direct_ops.h).
#pragma once

#include "fake/direct_ops.h"
#include "fake/session.h"
#include "fake/storage.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/InferenceMode.h>

#include <string>

namespace alternator::fake {

// The rule of an operator ("aten::embedding", "aten::var.correction"), or null.
const c10::KernelFunction* find_rule(const std::string& op);

class RuleRegistry {
 public:
  explicit RuleRegistry(torch::Library& library) : library_(library) {}

  // add<at::_ops::embedding>(embedding): a rule whose signature does not match the operator does not compile.
  template <class Operator>
  void add(typename Operator::schema* rule) {
    keep(full_name<Operator>(), c10::KernelFunction::makeFromUnboxedRuntimeFunction(rule));
    direct<Operator>();
  }
  // A rule for CPU and CUDA of an operator that asks_device.def names: the device of the call must be checked first.
  template <class Operator>
  void add_of_devices(typename Operator::schema* rule) {
    keep(full_name<Operator>(), c10::KernelFunction::makeFromUnboxedRuntimeFunction(rule));
  }
  // An operator that has a C++ Meta kernel and is common enough to be called without boxing.
  template <class Operator>
  void direct() {
    library_.impl(full_name<Operator>().substr(sizeof("aten::") - 1).c_str(), DirectCall<Operator>::function());
  }

 private:
  template <class Operator>
  static std::string full_name() {
    std::string name = Operator::name;
    if (*Operator::overload_name != '\0') name = name + "." + Operator::overload_name;
    return name;
  }
  static void keep(std::string name, c10::KernelFunction rule);

  torch::Library& library_;
};

// Creates the outputs of a rule: fakes of this thread's session, on the device of the call.
class Maker {
 public:
  Maker() : session_(*SessionState::current()), device_(t_device) {}

  c10::Device device() const { return device_; }

  at::Tensor contiguous(at::IntArrayRef sizes, at::ScalarType dtype) const {
    const caffe2::TypeMeta type = c10::scalarTypeToTypeMeta(dtype);
    at::Tensor tensor = blank(at::detail::computeStorageNbytesContiguous(sizes, type.itemsize()), type);
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
    return tensor;
  }
  at::Tensor formatted(at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format) const {
    at::Tensor tensor = contiguous(sizes, dtype);
    if (format != at::MemoryFormat::Contiguous) tensor.unsafeGetTensorImpl()->empty_tensor_restride(format);
    return tensor;
  }
  at::Tensor strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) const {
    const caffe2::TypeMeta type = c10::scalarTypeToTypeMeta(dtype);
    at::Tensor tensor = blank(at::detail::computeStorageNbytes(sizes, strides, type.itemsize()), type);
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    return tensor;
  }
  // Dense with the dimensions of `sizes` laid out in the order `layout`, outermost first.
  at::Tensor permuted(at::IntArrayRef sizes, at::IntArrayRef layout, at::ScalarType dtype) const;
  // The result of empty_like(preserve_format) and of a unary elementwise operator.
  at::Tensor like(const at::Tensor& tensor, at::ScalarType dtype) const;
  at::Tensor like(const at::Tensor& tensor) const { return like(tensor, tensor.scalar_type()); }
  // The result of a meta kernel, as a fake.
  at::Tensor adopt(const at::Tensor& meta) const { return session_.adopt(meta, device_); }

 private:
  at::Tensor blank(size_t nbytes, caffe2::TypeMeta type) const {
    return session_.make(make_storage(nbytes), keys_for(device_, c10::InferenceMode::is_enabled()), type, device_);
  }

  SessionState& session_;
  c10::Device device_;
};

// Concrete sizes: a rule is only called with those.
inline c10::SmallVector<int64_t, 6> concrete(c10::SymIntArrayRef values) {
  c10::SmallVector<int64_t, 6> result;
  result.reserve(values.size());
  for (const c10::SymInt& value : values) result.push_back(value.expect_int());
  return result;
}
using Sizes = c10::SmallVector<int64_t, 6>;
inline Sizes sizes_of(const at::Tensor& tensor) { return Sizes(tensor.sizes().begin(), tensor.sizes().end()); }
inline int64_t wrap(int64_t dim, int64_t rank) { return c10::maybe_wrap_dim(dim, rank); }

void add_attention_rules(RuleRegistry& rules);
void add_convolution_rules(RuleRegistry& rules);
void add_copy_rules(RuleRegistry& rules);
void add_elementwise_rules(RuleRegistry& rules);
void add_factory_rules(RuleRegistry& rules);
void add_fourier_rules(RuleRegistry& rules);
void add_indexing_rules(RuleRegistry& rules);
void add_linalg_rules(RuleRegistry& rules);
void add_normalization_rules(RuleRegistry& rules);
void add_pooling_rules(RuleRegistry& rules);
void add_reduction_rules(RuleRegistry& rules);
void add_direct_calls(RuleRegistry& rules);

}  // namespace alternator::fake
