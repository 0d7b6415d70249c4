#include "graph/record/state_calls.h"

#include "graph/record/torch_types.h"
#include "py/lasting.h"

#include <c10/core/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>

namespace alternator::graph {
namespace {

Borrowed flag_function(uint8_t index) {
  struct Setters {
    std::array<Ref, fake::Flags::kCount> all;
    Setters() {
      for (size_t i = 0; i < all.size(); ++i) all[i] = torch_name("torch._C", fake::Flags::rows()[i].setter);
    }
  };
  static constinit Lasting<Setters> lasting;
  return lasting.get().all[index];
}

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
    case StepKind::SetFlag:
      break;
  }
  ALT_CHECK(false, "unknown step");
  return {};
}

Ref boolean(bool value) { return Ref::share(value ? Py_True : Py_False); }
Ref dtype_object(c10::ScalarType type) {
  if (type == c10::ScalarType::Undefined) return Ref::share(Py_None);
  return Ref::share(reinterpret_cast<PyObject*>(torch::getTHPDtype(type)));
}

Ref text(const std::string& value) {
  return checked(PyUnicode_FromStringAndSize(value.data(), Py_ssize_t(value.size())));
}

void add_flag(const Step& step, StepCall* call) {
  const auto add = [&](Ref argument) { call->arguments.push_back(std::move(argument)); };
  switch (fake::Flags::rows()[step.index].form) {
    case fake::FlagForm::kSwitch:
      add(boolean(step.value != 0));
      break;
    case fake::FlagForm::kDeterministic:
      add(boolean((step.value & 1) != 0));
      call->keywords = checked(Py_BuildValue("{sO}", "warn_only", (step.value & 2) != 0 ? Py_True : Py_False));
      break;
    case fake::FlagForm::kReduction:
      add(boolean(step.value == 0));
      add(boolean(step.value != 2));
      break;
    case fake::FlagForm::kOrder: {
      Ref order = checked(PyList_New(0));
      for (const int64_t backend : fake::order_of(step.value))
        check_status(PyList_Append(order.get(), checked(PyLong_FromLongLong(backend)).get()));
      add(std::move(order));
      break;
    }
    case fake::FlagForm::kMatmulPrecision:
      add(text(fake::matmul_precision_name(step.value)));
      break;
    case fake::FlagForm::kCudaPrecision:
    case fake::FlagForm::kMkldnnPrecision:
      add(text(fake::Flags::rows()[step.index].form == fake::FlagForm::kCudaPrecision ? "cuda" : "mkldnn"));
      add(text("matmul"));
      add(text(fake::precision_name(step.value)));
      break;
  }
}

}  // namespace

StepCall step_call(const Step& step) {
  if (step.kind == StepKind::SetFlag) {
    StepCall call{flag_function(step.index), {}, false};
    add_flag(step, &call);
    return call;
  }
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
    case StepKind::SetFlag:
      break;
  }
  return call;
}

}  // namespace alternator::graph
