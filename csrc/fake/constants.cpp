#include "fake/constants.h"

#include "fake/op_arguments.h"
#include "fake/storage.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

namespace alternator::fake {
namespace {

// Constants are propagated through small operators only: enough for sizes, steps and flags.
constexpr int64_t kMaxElements = 64;

// The thread state of eager execution: no session, no grad, no inference tensors.
struct Concrete {
  Inactive inactive;
  c10::InferenceMode plain{false};
  at::AutoDispatchBelowADInplaceOrView below_autograd;
};

c10::StorageImpl& storage_of(const at::Tensor& fake) {
  return *fake.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

bool may_evaluate(const Call& call) {
  // Another device may round differently; random values come from the program's generator.
  if (call.op.random || !call.device.is_cpu()) return false;
  bool small = true;
  replace_tensors(call.arguments(), call.op.argument_count,
                  [&](const at::Tensor& tensor, size_t) -> std::optional<at::Tensor> {
                    small &= tensor.device().is_cpu() && tensor.numel() <= kMaxElements;
                    return std::nullopt;
                  });
  return small;
}

// Runs the operator on the values. Mutated arguments are copies, so that the shared values stay unchanged. `written`
// receives them, in the order of the arguments.
torch::jit::Stack evaluate_values(const Call& call, std::vector<std::pair<at::Tensor, at::Tensor>>& written) {
  torch::jit::Stack values(call.arguments(), call.arguments() + call.op.argument_count);
  replace_tensors(values.data(), values.size(), [&](const at::Tensor& tensor, size_t i) -> std::optional<at::Tensor> {
    std::optional<at::Tensor> value = peek_constant(tensor);
    if (value && i < 64 && (call.op.written_arguments >> i & 1) != 0) {
      const Concrete concrete;
      at::Tensor whole = at::empty({0}, value->options()).set_(value->storage()).clone();
      at::Tensor own = at::empty({0}, value->options())
                           .set_(whole.storage(), value->storage_offset(), value->sizes(), value->strides());
      written.emplace_back(tensor, own);
      return own;
    }
    return value;
  });
  const Concrete concrete;
  call.handle.callBoxed(values);
  return values;
}

void attach(const at::Tensor& fake, const at::Tensor& value) {
  if (as_fake(fake) == nullptr || !fake.device().is_cpu() || fake.sizes() != value.sizes() ||
      fake.strides() != value.strides() || fake.storage_offset() != value.storage_offset() ||
      fake.dtype() != value.dtype() || storage_of(fake).nbytes() > value.storage().nbytes())
    return;
  attach_constant(storage_of(fake), value.storage());
}

}  // namespace

at::Tensor make_constant(const SessionState& session, const at::Tensor& value) {
  const Concrete concrete;
  at::Tensor copy = value.to(c10::kCPU).clone(at::MemoryFormat::Preserve);
  at::Tensor fake = session.make(make_constant_storage(copy.storage()), keys_for(value.device(), false), copy.dtype(),
                                 value.device());
  auto* impl = static_cast<FakeTensorImpl*>(fake.unsafeGetTensorImpl());
  impl->copy_geometry(*copy.unsafeGetTensorImpl());
  if (value.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return fake;
}

std::optional<at::Tensor> peek_constant(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (as_fake(tensor) == nullptr) {
    if (impl->is_wrapped_number()) return tensor;
    return std::nullopt;
  }
  const c10::Storage* value = constant_of(storage_of(tensor));
  if (value == nullptr || impl->has_symbolic_sizes_strides()) return std::nullopt;
  const Concrete concrete;
  at::Tensor real = at::empty({0}, at::TensorOptions().dtype(tensor.dtype()).device(c10::kCPU));
  real.set_(*value, impl->storage_offset(), impl->sizes(), impl->strides());
  if (impl->is_conj()) real.unsafeGetTensorImpl()->_set_conj(true);
  if (impl->is_neg()) real.unsafeGetTensorImpl()->_set_neg(true);
  return real;
}

void lift_constant(const Call& call) {
  c10::IValue& argument = *call.arguments();
  const at::Tensor& tensor = argument.toTensor();
  if (as_fake(tensor) == nullptr) argument = make_constant(call.session, tensor);
}

bool evaluate(const Call& call) {
  if (call.op.mutates || call.op.returns_view || call.op.random) return false;
  std::vector<std::pair<at::Tensor, at::Tensor>> written;
  torch::jit::Stack values = evaluate_values(call, written);
  replace_tensors(values.data(), values.size(), [&](const at::Tensor& tensor, size_t) -> std::optional<at::Tensor> {
    return make_constant(call.session, tensor);
  });
  call.stack.resize(call.stack.size() - call.op.argument_count);
  call.stack.insert(call.stack.end(), values.begin(), values.end());
  return true;
}

void forget_written(const Call& call) {
  if (!call.op.mutates) return;
  replace_tensors(call.arguments(), call.op.argument_count,
                  [&](const at::Tensor& tensor, size_t i) -> std::optional<at::Tensor> {
                    if (i < 64 && (call.op.written_arguments >> i & 1) != 0 && as_fake(tensor) != nullptr)
                      forget_constant(storage_of(tensor));
                    return std::nullopt;
                  });
}

void compute_with_constants(const Call& call, bool all_known) {
  const bool follow = all_known && !call.op.returns_view && may_evaluate(call);
  std::vector<std::pair<at::Tensor, at::Tensor>> written;
  torch::jit::Stack values;
  if (follow) {
    values = evaluate_values(call, written);
  } else {
    forget_written(call);
  }
  compute(call);
  if (!follow) return;
  for (const auto& [fake, value] : written) {
    forget_constant(storage_of(fake));
    attach(fake, value);
  }
  if (call.op.mutates) return;
  for (size_t i = 0; i < values.size(); i++) {
    const c10::IValue& fake = call.outputs()[i];
    if (fake.isTensor() && fake.toTensor().defined() && values[i].isTensor() && values[i].toTensor().defined())
      attach(fake.toTensor(), values[i].toTensor());
  }
}

}  // namespace alternator::fake
