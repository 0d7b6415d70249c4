#include "graph/state_calls.h"

#include "graph/torch_types.h"
#include "py/lasting.h"

#include <c10/core/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>

namespace alternator::graph {
namespace {

Borrowed function(StepKind kind) {
  struct Functions {
    Ref set_grad = torch_name("torch._C", "_set_grad_enabled");
    Ref enter_autocast = torch_name("torch.amp.autocast_mode", "_enter_autocast");
    Ref exit_autocast = torch_name("torch.amp.autocast_mode", "_exit_autocast");
    Ref enter_inference = torch_name("torch.autograd.grad_mode", "_enter_inference_mode");
    Ref exit_inference = torch_name("torch.autograd.grad_mode", "_exit_inference_mode");
    Ref set_default_dtype = torch_name("torch", "set_default_dtype");
  };
  static constinit Lasting<Functions> lasting;
  const Functions* functions = &lasting.get();
  switch (kind) {
    case StepKind::SetGrad:
      return functions->set_grad;
    case StepKind::EnterAutocast:
      return functions->enter_autocast;
    case StepKind::ExitAutocast:
      return functions->exit_autocast;
    case StepKind::EnterInference:
      return functions->enter_inference;
    case StepKind::ExitInference:
      return functions->exit_inference;
    case StepKind::SetDefaultDtype:
      return functions->set_default_dtype;
  }
  ALT_CHECK(false, "unknown step");
  return {};
}

Ref boolean(bool value) { return Ref::share(value ? Py_True : Py_False); }
Ref dtype_object(c10::ScalarType type) {
  if (type == c10::ScalarType::Undefined) return Ref::share(Py_None);
  return Ref::share(reinterpret_cast<PyObject*>(torch::getTHPDtype(type)));
}

}  // namespace

StepCall step_call(const Step& step) {
  StepCall call{function(step.kind), {}, false};
  switch (step.kind) {
    case StepKind::SetGrad:
    case StepKind::EnterInference:
      call.arguments.push_back(boolean(step.flag));
      break;
    case StepKind::EnterAutocast:
      call.arguments.push_back(
          checked(PyUnicode_FromString(c10::DeviceTypeName(step.device, /*lower_case=*/true).c_str())));
      call.arguments.push_back(dtype_object(step.dtype));
      call.arguments.push_back(boolean(step.flag));
      call.arguments.push_back(boolean(step.cache));
      break;
    case StepKind::SetDefaultDtype:
      call.arguments.push_back(dtype_object(step.dtype));
      break;
    case StepKind::ExitAutocast:
    case StepKind::ExitInference:
      call.takes_scope = true;
      break;
  }
  return call;
}

}  // namespace alternator::graph
