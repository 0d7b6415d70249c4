#include "trace/core/trace_scope.h"

#include "fake/functorch_state.h"
#include "interpreter/continuation_calls.h"
#include "interpreter/frame_hook.h"
#include "trace/core/frame_evaluator.h"
#include "trace/core/tracer.h"
#include "trace/torch/scoped_modes.h"
#include "trace/torch/torch_function_modes.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/jit/frontend/tracer.h>

namespace alternator::trace {

TraceScope::TraceScope(Tracer& tracer) : tracer_(tracer) {
  // A profiler or debugger sees the program run, not the trace of it.
  PyThreadState_EnterTracing(PyThreadState_Get());
  hook_depth_before_ = std::exchange(hook_depth, PyThreadState_Get()->tracing);
  current_tracer = &tracer;
  continuation_call = call_traced;
  control.evaluator = evaluate_traced;
  Reading::later() = false;
  acquire_hook();
}

TraceScope::~TraceScope() {
  if (tracer_.recorder.watched_flags()) tracer_.result.flags_before->apply();
  PyThreadState_LeaveTracing(PyThreadState_Get());
  hook_depth = hook_depth_before_;
  release_hook();
  continuation_call = nullptr;
  control.evaluator = nullptr;
  current_tracer = nullptr;
}

const char* active_callbacks() {
  if (c10::impl::TorchDispatchModeTLS::stack_len() > 0) return "a torch-dispatch mode is active";
  for (int64_t i = 0; i < at::impl::PythonTorchFunctionTLS::stack_len(); i++) {
    PyTypeObject* type = Py_TYPE(at::impl::PythonTorchFunctionTLS::get_stack_at(i)->ptr(getPyInterpreter()));
    // A default-device mode only adds an argument.
    if (!is_device_context(type) && !graph::is_recording_mode(type)) return "a torch-function mode is active";
  }
  if (fake::transform_depth() != 0) return "a functorch transform is active";
  if (torch::autograd::ForwardADLevel::try_get_by_idx(0)) return "a level of forward-mode differentiation is active";
  if (torch::jit::tracer::isTracing()) return "torch.jit.trace is running";  // it would record the fake tensors
  if (at::impl::torch_function_all_disabled())
    return "torch functions are switched off (torch._C.DisableTorchFunction)";
  return nullptr;
}

}  // namespace alternator::trace
