// The unboxed path of common operators: no stack of IValues, no argument list to scan. Anything unusual (a real tensor,
// a known value, two devices) takes the boxed path.
#pragma once

#include "fake/devices.h"
#include "fake/fallback.h"
#include "fake/kernels.h"
#include "fake/storage.h"

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <tuple>
#include <type_traits>
#include <vector>

namespace alternator::fake {

// Scans the arguments of one call, as ArgumentScan does, but only to confirm that nothing is unusual.
class DirectScan {
 public:
  explicit DirectScan(const SessionState& session) : session_(session) {}

  bool add(const at::Tensor& tensor) {
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    if (!impl->key_set().has(kFakeKey)) return impl->is_wrapped_number() || !tensor.defined();
    const FakeTensorImpl* fake = as_fake(impl);
    if (fake == nullptr || fake->session() != session_.id() || fake->has_symbolic_sizes_strides()) return false;
    if (may_be_constant(*fake->unsafe_storage().unsafeGetStorageImpl())) return false;
    const c10::Device device = fake->fake_device();
    if (!found_) {
      device_ = device;
      found_ = true;
      return true;
    }
    return device == device_;  // a 0-d CPU tensor among CUDA tensors is rare enough
  }
  bool add(const std::optional<at::Tensor>& tensor) { return !tensor.has_value() || add(*tensor); }
  bool add(const at::ITensorListRef& tensors) {
    for (const at::Tensor& tensor : tensors) {
      if (!add(tensor)) return false;
    }
    return true;
  }
  bool add(at::TensorList tensors) {
    for (const at::Tensor& tensor : tensors) {
      if (!add(tensor)) return false;
    }
    return true;
  }
  bool add(const c10::List<std::optional<at::Tensor>>& tensors) {
    for (const std::optional<at::Tensor> tensor : tensors) {
      if (!add(tensor)) return false;
      // Indices: a mask makes the shape data-dependent.
      if (tensor.has_value() && tensor->defined() &&
          (tensor->scalar_type() == at::kBool || tensor->scalar_type() == at::kByte))
        return false;
    }
    return true;
  }
  bool add(const c10::SymInt& value) { return !value.is_heap_allocated(); }
  bool add(c10::SymIntArrayRef values) {
    for (const c10::SymInt& value : values) {
      if (value.is_heap_allocated()) return false;
    }
    return true;
  }
  bool add(const at::OptionalSymIntArrayRef& values) { return !values.has_value() || add(*values); }
  bool add(const std::optional<c10::SymInt>& value) { return !value.has_value() || add(*value); }
  bool add(const at::Scalar& value) { return !value.isSymbolic(); }
  bool add(const std::optional<at::Scalar>& value) { return !value.has_value() || add(*value); }
  bool add(const std::optional<c10::Device>& device) {
    if (device.has_value()) {
      device_ = with_index(*device);
      found_ = true;
    }
    return true;
  }
  template <class Other>
    requires(!std::is_convertible_v<Other, at::Tensor>)
  bool add(const Other&) {
    return true;
  }

  c10::Device device() const { return device_; }

 private:
  const SessionState& session_;
  c10::Device device_ = c10::Device(c10::kCPU);
  bool found_ = false;
};

inline at::Tensor adopt_output(const SessionState& session, c10::Device device, const at::Tensor& output) {
  return output.defined() ? session.adopt(output, device) : output;
}
inline at::Tensor& adopt_output(const SessionState&, c10::Device, at::Tensor& output) { return output; }
inline std::vector<at::Tensor> adopt_output(const SessionState& session, c10::Device device,
                                            std::vector<at::Tensor> outputs) {
  for (at::Tensor& output : outputs) output = adopt_output(session, device, std::as_const(output));
  return outputs;
}
template <class... Outputs>
std::tuple<Outputs...> adopt_output(const SessionState& session, c10::Device device,
                                    const std::tuple<Outputs...>& outputs) {
  return std::apply(
      [&](const auto&... output) { return std::tuple<Outputs...>(adopt_output(session, device, output)...); }, outputs);
}

template <class Operator, class Schema = typename Operator::schema>
struct DirectCall;

template <class Operator, class Return, class... Arguments>
struct DirectCall<Operator, Return(Arguments...)> {
  static Return call(c10::DispatchKeySet keys, Arguments... arguments) {
    static const c10::OperatorHandle handle =
        c10::Dispatcher::singleton().findSchemaOrThrow(Operator::name, Operator::overload_name);
    static Op& op = op_of(handle);
    SessionState* session = SessionState::current();
    if (session != nullptr) [[likely]] {
      DirectScan scan(*session);
      if ((scan.add(arguments) && ...)) [[likely]] {
        session->count(op);
        const KernelKind kind = op.kind.load(std::memory_order_relaxed);
        if (kind == KernelKind::Rule) {
          t_device = scan.device();
          return op.kernel.call<Return, Arguments...>(handle, keys, std::forward<Arguments>(arguments)...);
        }
        if ((kind == KernelKind::Meta && op.device_argument < 0) ||
            (kind == KernelKind::Composite && op.returns_view)) {
          AllowAddresses addresses;
          if constexpr (std::is_same_v<Return, at::Tensor&>) (allow(addresses, arguments), ...);
          const AsMeta as_meta;
          if constexpr (std::is_same_v<Return, at::Tensor&> || std::is_void_v<Return>) {
            return op.kernel.call<Return, Arguments...>(handle, keys, std::forward<Arguments>(arguments)...);
          } else {
            return adopt_output(
                *session, scan.device(),
                op.kernel.call<Return, Arguments...>(handle, keys, std::forward<Arguments>(arguments)...));
          }
        }
      }
    }
    static const c10::KernelFunction boxed = c10::KernelFunction::makeFromBoxedFunction<&run_boxed>();
    return boxed.call<Return, Arguments...>(handle, keys, std::forward<Arguments>(arguments)...);
  }

  static torch::CppFunction function() { return torch::CppFunction::makeFromUnboxedFunction(TORCH_FN(call)); }

 private:
  static void allow(AllowAddresses& addresses, const at::Tensor& tensor) {
    if (as_fake(tensor) != nullptr)
      addresses.add(*tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  }
  template <class Other>
    requires(!std::is_convertible_v<Other, at::Tensor>)
  static void allow(AllowAddresses&, const Other&) {}
};

}  // namespace alternator::fake
