// Hooks of the caller's on tensors that are saved for a backward pass (torch.autograd.graph.saved_tensors_hooks).
#pragma once

#include <ATen/SavedTensorHooks.h>

namespace alternator::fake {

inline bool has_saved_hooks() { return !at::SavedTensorDefaultHooks::get_tls_state().stack.empty(); }

// In its scope they are not called: they are for the tensors of a run, not for those of a trace or of a backend.
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
