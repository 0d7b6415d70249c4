// Scopes around a graph while it runs or is compiled.
#pragma once

#include "fake/functorch_state.h"
#include "py/error.h"

#include <ATen/PythonTorchFunctionTLS.h>

namespace alternator::backend {

// If a graph raises inside a functorch transform, that transform is exited as in eager.
template <class Run>
auto leaving_transforms(bool transforms, Run&& run) {
  if (!transforms) return run();
  const fake::TransformsAsBefore before;
  try {
    return run();
  } catch (const PyError&) {
    const SavedError on_its_way;
    before.restore();
    throw;
  }
}

// Disables the torch-function modes of this thread while it lives.
class WithoutModes {
 public:
  WithoutModes() : before_(at::impl::PythonTorchFunctionTLS::get_state()) {
    while (at::impl::PythonTorchFunctionTLS::stack_len() > 0) at::impl::PythonTorchFunctionTLS::pop_stack();
  }
  ~WithoutModes() { at::impl::PythonTorchFunctionTLS::set_state(before_); }
  WithoutModes(const WithoutModes&) = delete;
  WithoutModes& operator=(const WithoutModes&) = delete;

 private:
  at::impl::PythonTorchFunctionTLS before_;
};

}  // namespace alternator::backend
