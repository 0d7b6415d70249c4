// TODO
#pragma once
#include <functional>
#include <string>

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

class TorchFunctionMethods {
 public:
  explicit TorchFunctionMethods(Tracer& tracer) : t(tracer) {}
  // Torch first dispatches to a user class's __torch_function__ for these: that method is traced like any other
  // callback.
  bool is_overridden(Borrowed object);
  bool is_overridden(PyObject* const* objects, size_t count);
  bool is_overridden_call(Borrowed callable, PyObject* const* arguments, size_t count);
  // Runs native code that dispatches to it.
  Ref run_overridden(const std::string& what, const std::function<PyObject*()>& run);
  Ref call_overridden(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  void note_override(Borrowed types, Borrowed arguments, Borrowed keywords);
  // torch.Tensor.__torch_function__ itself, torch._C._disabled_torch_function_impl, and the getters that torch passes
  // to either. Null: it is none of these calls, or is traced itself.
  Ref call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  PyObject* for_class = nullptr;  // borrowed: torch.Tensor.__torch_function__ makes the next torch call for it

 private:
  Ref call_torchs_override(PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref call_without_subclasses(PyObject* const* arguments, size_t count);
  Ref call_tensor_getter(Borrowed getter, PyObject* const* arguments, size_t count);
  Ref call_spread(Borrowed callable, Borrowed arguments, Borrowed keywords);
  Ref convert_result(Ref result, Borrowed cls);
  uint64_t overrides_seen_ = 0;  // number of __torch_function__ dispatches
  Tracer& t;
};

}  // namespace alternator::trace
