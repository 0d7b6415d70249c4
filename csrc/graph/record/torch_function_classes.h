// Classes with a `__torch_function__`: torch calls that in place of a function that receives one of their instances.
#pragma once

#include "py/error.h"

#include <ATen/PythonTorchFunctionTLS.h>

namespace alternator::graph {

// Torch dispatches to the __torch_function__ of this class.
bool is_asked(PyTypeObject* type);
// ... and it is user code, not the method of torch.Tensor.
bool has_own_torch_function(PyTypeObject* type);
// Whether the object is an instance of such a class, or a list, tuple or dict that contains one.
bool any_of_class(Borrowed object, bool (*test)(PyTypeObject*));

// torch._C.DisableTorchFunctionSubclass: no class is dispatched to.
inline bool subclasses_are_off() {
  return at::impl::PythonTorchFunctionTLS::get_disabled_state() ==
         at::impl::TorchFunctionDisabledState::SUBCLASSES_DISABLED;
}
inline bool subclasses_are_on() {
  return at::impl::PythonTorchFunctionTLS::get_disabled_state() == at::impl::TorchFunctionDisabledState::ENABLED;
}

// Disables the dispatch to classes in its scope, where it is enabled.
class WithoutSubclasses {
 public:
  WithoutSubclasses() : before_(at::impl::PythonTorchFunctionTLS::get_disabled_state()) {
    if (before_ == at::impl::TorchFunctionDisabledState::ENABLED)
      at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::SUBCLASSES_DISABLED);
  }
  ~WithoutSubclasses() { at::impl::PythonTorchFunctionTLS::set_disabled_state(before_); }
  WithoutSubclasses(const WithoutSubclasses&) = delete;
  WithoutSubclasses& operator=(const WithoutSubclasses&) = delete;

 private:
  at::impl::TorchFunctionDisabledState before_;
};

}  // namespace alternator::graph
