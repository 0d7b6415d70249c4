// Classes with a `__torch_function__`: torch calls that in place of a function that is given one of their instances.
#pragma once

#include "py/error.h"

#include <ATen/PythonTorchFunctionTLS.h>

namespace alternator::graph {

// Torch asks this class before it does anything with an instance of it.
bool is_asked(PyTypeObject* type);
// ... and what it asks is code of the program's, not the method of torch.Tensor.
bool has_own_torch_function(PyTypeObject* type);
// Whether such an object is among these, also inside of lists, tuples and dicts.
bool any_of_class(Borrowed object, bool (*test)(PyTypeObject*));

// torch._C.DisableTorchFunctionSubclass: no class is asked.
inline bool subclasses_are_off() {
  return at::impl::PythonTorchFunctionTLS::get_disabled_state() ==
         at::impl::TorchFunctionDisabledState::SUBCLASSES_DISABLED;
}
inline bool subclasses_are_on() {
  return at::impl::PythonTorchFunctionTLS::get_disabled_state() == at::impl::TorchFunctionDisabledState::ENABLED;
}

// Switches them off in its scope, where they are on.
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
