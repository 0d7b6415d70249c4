// functorch's transforms (vmap, grad, jvp): their thread-local state while a transformed function runs.
#pragma once

#include <ATen/FuncTorchTLS.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// ATen/functorch/DynamicLayer.h needs a header that torch does not ship. The contents of a layer do not matter here.
namespace at::functorch {
struct DynamicLayer;
TORCH_API const std::vector<DynamicLayer>& getDynamicLayerStack();
}  // namespace at::functorch

namespace alternator::fake {

// The size of functorch's stack of transforms, in bytes: grows with each transform; 0 for none.
inline size_t transform_depth() {
  struct Range {
    const char *begin, *end, *capacity;
  };
  const auto& layers = at::functorch::getDynamicLayerStack();
  static_assert(sizeof(layers) == sizeof(Range));
  const auto& range = reinterpret_cast<const Range&>(layers);
  return static_cast<size_t>(range.end - range.begin);
}

// A functorch tensor wrapper.
inline bool is_wrapped(const at::TensorBase& tensor) {
  return tensor.defined() && tensor.key_set().has_any(c10::DispatchKeySet(
                                 {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper}));
}

// Everything that entering a transform sets, and leaving it restores.
struct TransformState {
  size_t depth = 0;
  bool dual_level = false;
  bool forward_mode = true;
  bool requires_grad_allowed = false;
  std::optional<std::string> hooks_message;  // saved-tensor hooks are disabled, with this message

  bool operator==(const TransformState&) const = default;
  static TransformState now();
};

// Leaves the dual level that was entered since; the rest of the state is torch's ThreadLocalState.
void leave_dual_level(bool was_inside);

// Restores the thread's state, where a run was abandoned inside a transform.
class TransformsAsBefore {
 public:
  TransformsAsBefore() : dual_level_(TransformState::now().dual_level) {}
  void restore() const {
    at::ThreadLocalState::setThreadLocalState(state_);
    leave_dual_level(dual_level_);
  }

 private:
  at::ThreadLocalState state_;
  bool dual_level_;
};

// In its scope operators are not transformed.
class WithoutTransforms {
 public:
  WithoutTransforms();
  ~WithoutTransforms();
  WithoutTransforms(const WithoutTransforms&) = delete;
  WithoutTransforms& operator=(const WithoutTransforms&) = delete;

 private:
  std::unique_ptr<at::functorch::FuncTorchTLSBase> layers_;
  std::optional<c10::impl::ExcludeDispatchKeyGuard> excluded_;
};

}  // namespace alternator::fake
