// A call that the program does not see as a torch call.
#pragma once

#include <ATen/PythonTorchFunctionTLS.h>

namespace alternator::graph {

// In its scope, no mode and no tensor subclass is dispatched to.
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
