// Classes with a user-defined __torch_function__: calls that torch dispatches to it, and torch's own default method.
#pragma once

#include "trace/core/call.h"

#include <functional>
#include <string>

namespace alternator::trace {

class Tracer;

class TorchFunctionMethods {
 public:
  explicit TorchFunctionMethods(Tracer& tracer) : t(tracer) {}

  // Torch first dispatches to a user class's __torch_function__ for these: that method is traced like any other
  // callback.
  bool is_overridden(Borrowed object);
  bool is_overridden(PyObject* const* objects, size_t count);
  bool is_overridden_call(const Call& call);
  // Runs native code that dispatches to it.
  Ref run_overridden(const std::string& what, const std::function<PyObject*()>& run);
  Ref call_overridden(const Call& call);
  void note_override(Borrowed types, Borrowed arguments, Borrowed keywords);

  // Handlers; null: the call is no such one, or is traced itself.
  Ref has_torch_function(const Call& call);       // torch._C._has_torch_function
  Ref call_torchs_override(const Call& call);     // Tensor.__torch_function__
  Ref call_without_subclasses(const Call& call);  // _disabled_torch_function_impl
  Ref call_tensor_getter(const Call& call);       // Tensor.shape.__get__

  PyObject* for_class = nullptr;  // borrowed: torch.Tensor.__torch_function__ makes the next torch call for it

 private:
  Ref call_spread(Borrowed callable, Borrowed arguments, Borrowed keywords);
  Ref convert_result(Ref result, Borrowed cls);

  Tracer& t;
  uint64_t overrides_seen_ = 0;  // number of __torch_function__ dispatches
};

}  // namespace alternator::trace
