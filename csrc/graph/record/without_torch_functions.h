// A call that is no torch call to the program.
#pragma once

#include <ATen/PythonTorchFunctionTLS.h>

namespace alternator::graph {

// While it lives, nobody's mode and no class of tensors is asked about a torch call.
class WithoutTorchFunctions {
 public:
  WithoutTorchFunctions() : before_(at::impl::PythonTorchFunctionTLS::get_disabled_state()) {
    at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED);
  }
  ~WithoutTorchFunctions() { at::impl::PythonTorchFunctionTLS::set_disabled_state(before_); }
  WithoutTorchFunctions(const WithoutTorchFunctions&) = delete;
  WithoutTorchFunctions& operator=(const WithoutTorchFunctions&) = delete;

 private:
  at::impl::TorchFunctionDisabledState before_;
};

}  // namespace alternator::graph
