// Torch-function modes that the program enters. The real object lies on torch's stack, above the recording: torch calls
// its __torch_function__, whose frame is traced like any callback's; what it makes of the call is recorded.
#include "trace/tracer.h"

#include "graph/mode.h"
#include "interpreter/capture.h"
#include "py/lasting.h"
#include "trace/modes.h"
#include "trace/natives.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/PyInterpreter.h>

namespace alternator::trace {

using at::impl::PythonTorchFunctionTLS;

namespace {

struct ModeFunctions {
  Ref push = graph::torch_name("torch._C", "_push_on_torch_function_stack");
  Ref pop = graph::torch_name("torch._C", "_pop_torch_function_stack");
  Ref at = graph::torch_name("torch._C", "_get_function_stack_at");
  Ref device_context = graph::torch_name("torch.utils._device", "DeviceContext");
};
const ModeFunctions& mode_functions() {
  static constinit Lasting<ModeFunctions> functions;
  return functions.get();
}

}  // namespace

void load_function_modes() { mode_functions(); }

bool is_device_context(PyTypeObject* type) {
  return reinterpret_cast<PyObject*>(type) == mode_functions().device_context.get();
}

bool Tracer::is_under_modes() const {
  return own_modes_ > 0 && !graph::is_top_mode(recorder.mode()) && PythonTorchFunctionTLS::stack_len() > 0 &&
         !at::impl::torch_function_all_disabled();
}

void Tracer::forbid_under_modes(const char* what) const {
  if (own_modes_ > 0)
    stop(report::Reason::native_call, std::string(what) + " under a torch-function mode of the program's");
}

bool Tracer::is_unwinding() const { return stopped || capture_in_flight(); }

void Tracer::push_mode(Borrowed mode) {
  if (transformed_ || recorder.is_silent()) stop(report::Reason::native_call, "a torch-function mode in a transform");
  // Torch looks it up by itself: it must find what the program would.
  Ref name = checked(PyUnicode_InternFromString("__torch_function__"));
  Ref seen = get_attribute(mode, name), found = checked(PyObject_GetAttr(mode.get(), name.get()));
  if (!PyMethod_Check(seen.get()) || !PyMethod_Check(found.get()) ||
      PyMethod_GET_FUNCTION(seen.get()) != PyMethod_GET_FUNCTION(found.get()) ||
      PyMethod_GET_SELF(seen.get()) != mode.get() || PyMethod_GET_SELF(found.get()) != mode.get())
    stop(report::Reason::native_call, "a torch-function mode whose __torch_function__ is no method");
  // One that was only put aside is entered where it was.
  if (own_modes_ == 0 && (mode.get() != last_popped_mode_ || mode_points_.empty())) mode_points_ = points_here();
  keep_alive.push_back(Ref::share(mode));
  PythonTorchFunctionTLS::push_onto_stack(
      std::make_shared<c10::SafePyObject>(Ref::share(mode).release(), getPyInterpreter()));
  own_modes_++;
}

Ref Tracer::pop_mode() {
  if (own_modes_ == 0 || graph::is_top_mode(recorder.mode()))
    stop(report::Reason::native_call, "the call leaves a torch-function mode that it has not entered");
  const std::shared_ptr<c10::SafePyObject> mode = PythonTorchFunctionTLS::pop_stack();
  own_modes_--;
  last_popped_mode_ = mode->ptr(getPyInterpreter());
  return Ref::share(last_popped_mode_);
}

// `with torch.device("cuda"):` pushes a mode that torch makes for it.
Ref Tracer::call_device_scope(Borrowed callable, size_t count) {
  if (!PyCFunction_Check(callable.get())) return {};
  PyObject* device = PyCFunction_GET_SELF(callable.get());
  if (device == nullptr || !THPDevice_Check(device)) return {};
  const std::string_view name = callable.as<PyCFunctionObject>()->m_ml->ml_name;
  if (name == "__enter__" && count == 0) {
    Borrowed type = mode_functions().device_context;
    PyObject* given[] = {nullptr, device};
    push_mode(call(lifter.lift(type, lifter.constant(type)), given + 1, 1, {}));
    return Ref::share(device);
  }
  if (name != "__exit__") return {};
  (void)pop_mode();
  return Ref::share(Py_None);
}

Ref Tracer::call_mode_stack(Borrowed callable, PyObject* const* arguments, size_t count) {
  const ModeFunctions& functions = mode_functions();
  if (callable == Borrowed(functions.push) && count == 1) {
    push_mode(arguments[0]);
    return Ref::share(Py_None);
  }
  if (callable == Borrowed(functions.pop) && count == 0) return pop_mode();
  if (callable == Borrowed(functions.at) && count == 1 && PyLong_CheckExact(arguments[0])) {
    // The recording lies below those of the program's own, and is none to it.
    const int64_t at = PyLong_AsLongLong(arguments[0]) + 1, depth = PythonTorchFunctionTLS::stack_len();
    if (at < depth && at >= depth - own_modes_ && !graph::is_top_mode(recorder.mode()))
      return Ref::share(PythonTorchFunctionTLS::get_stack_at(at)->ptr(getPyInterpreter()));
    PyErr_Clear();
    stop(report::Reason::native_call, native_name(callable));
  }
  return call_device_scope(callable, count);
}

}  // namespace alternator::trace
