// The caller's hooks on saved tensors (torch.autograd.graph.saved_tensors_hooks).
#pragma once

#include <ATen/SavedTensorHooks.h>

namespace alternator::fake {

inline bool has_saved_hooks() { return !at::SavedTensorDefaultHooks::get_tls_state().stack.empty(); }

// Disables them in its scope: they apply to the tensors of a run, not to those of a trace or of a backend.
class SavedHooksRest {
 public:
  SavedHooksRest() = default;
  ~SavedHooksRest() { at::SavedTensorDefaultHooks::set_tracing(before_); }
  SavedHooksRest(const SavedHooksRest&) = delete;
  SavedHooksRest& operator=(const SavedHooksRest&) = delete;

 private:
  bool before_ = at::SavedTensorDefaultHooks::set_tracing(true);
};

}  // namespace alternator::fake
