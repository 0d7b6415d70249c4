#include "fake/functorch_state.h"

#include <ATen/SavedTensorHooks.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/forward_grad.h>

namespace at::functorch {
TORCH_API bool getInplaceRequiresGradAllowed();
}  // namespace at::functorch

namespace alternator::fake {

TransformState TransformState::now() {
  using torch::autograd::ForwardADLevel;
  TransformState state;
  state.depth = transform_depth();
  state.dual_level = ForwardADLevel::try_get_by_idx(0) != nullptr;
  state.forward_mode = c10::AutogradState::get_tls_state().get_fw_grad_mode();
  state.requires_grad_allowed = at::functorch::getInplaceRequiresGradAllowed();
  state.hooks_message = at::SavedTensorDefaultHooks::get_disabled_error_message();
  return state;
}

void leave_dual_level(bool was_inside) {
  using torch::autograd::ForwardADLevel;
  if (!was_inside && ForwardADLevel::try_get_by_idx(0) != nullptr) ForwardADLevel::release_idx(0);
}

WithoutTransforms::WithoutTransforms() {
  if (transform_depth() == 0) return;
  layers_ = std::move(at::functorch::functorchTLSAccessor());
  excluded_.emplace(c10::DispatchKeySet(
      {c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode}));
}

WithoutTransforms::~WithoutTransforms() {
  if (layers_) at::functorch::functorchTLSAccessor() = std::move(layers_);
}

}  // namespace alternator::fake
