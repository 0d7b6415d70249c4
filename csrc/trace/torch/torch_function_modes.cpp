// Torch-function modes that the program enters. The real object lies on torch's mode stack, above the recording mode:
// torch calls its __torch_function__, whose frame is traced like any callback's; the calls that it makes are recorded.
#include "trace/torch/torch_function_modes.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/attributes.h"

#include "graph/record/recording_mode.h"
#include "interpreter/capture.h"
#include "py/lasting.h"
#include "trace/calls/handlers.h"
#include "trace/calls/natives.h"
#include "trace/torch/scoped_modes.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/PyInterpreter.h>

#include <algorithm>

namespace alternator::trace {

using at::impl::PythonTorchFunctionTLS;

namespace {

struct ModeFunctions {
  Ref at = graph::torch_name("torch._C", "_get_function_stack_at");
  Ref device_context = graph::torch_name("torch.utils._device", "DeviceContext");
};
const ModeFunctions& mode_functions() {
  static constinit Lasting<ModeFunctions> functions;
  return functions.get();
}

PyObject* mode_at(int64_t index) { return PythonTorchFunctionTLS::get_stack_at(index)->ptr(getPyInterpreter()); }

}  // namespace

void load_function_modes() {
  // Torch caches this set in the first call under a default device; before that it cannot be read.
  static constinit Lasting<Ref> constructors;
  constructors.get([] {
    return checked(PyObject_CallNoArgs(graph::torch_name("torch.utils._device", "_device_constructors").get()));
  });
  mode_functions();
}

bool is_device_context(PyTypeObject* type) {
  return reinterpret_cast<PyObject*>(type) == mode_functions().device_context.get();
}

bool TorchFunctionModes::is_active() const {
  return own > 0 && !graph::is_top_mode(t.recorder.mode()) && PythonTorchFunctionTLS::stack_len() > 0 &&
         !at::impl::torch_function_all_disabled();
}

void TorchFunctionModes::forbid(const char* what) const {
  if (own > 0) stop(report::Reason::native_call, std::string(what) + " under a user's torch-function mode");
}

bool TorchFunctionModes::is_unwinding() const { return t.result.stopped || capture_in_flight(); }

void TorchFunctionModes::push(Borrowed mode) {
  if (t.is_transformed() || t.recorder.is_silent())
    stop(report::Reason::native_call, "a torch-function mode in a transform");
  // Torch looks the method up natively: it must find the one that the traced program would find.
  Ref name = checked(PyUnicode_InternFromString("__torch_function__"));
  Ref seen = get_attribute(t, mode, name), found = checked(PyObject_GetAttr(mode.get(), name.get()));
  if (!PyMethod_Check(seen.get()) || !PyMethod_Check(found.get()) ||
      PyMethod_GET_FUNCTION(seen.get()) != PyMethod_GET_FUNCTION(found.get()) ||
      PyMethod_GET_SELF(seen.get()) != mode.get() || PyMethod_GET_SELF(found.get()) != mode.get())
    stop(report::Reason::native_call, "a torch-function mode whose __torch_function__ is not a method");
  // A mode that was only popped temporarily keeps the resume points where it was entered first.
  const bool is_foreign = !is_device_context(mode.type());
  if (is_foreign && foreign == 0 && (mode.get() != last_popped_mode_ || points.empty())) points = t.points_here();
  t.keep_alive.push_back(Ref::share(mode));
  PythonTorchFunctionTLS::push_onto_stack(
      std::make_shared<c10::SafePyObject>(Ref::share(mode).release(), getPyInterpreter()));
  own++;
  if (is_foreign) foreign++;
}

// How many of the caller's modes lie below the recording mode; -1: it is not on the stack, because torch is running one
// of our calls.
static int64_t modes_below(Borrowed recording) {
  for (int64_t i = PythonTorchFunctionTLS::stack_len(); i-- > 0;) {
    if (mode_at(i) == recording) return i;
  }
  return -1;
}

// Works too where torch has popped the recording mode to call it: then it has popped those above it as well.
int64_t TorchFunctionModes::below_recording() const {
  const int64_t below = modes_below(t.recorder.mode());
  return below >= 0 ? below : PythonTorchFunctionTLS::stack_len();
}

lift::Source* TorchFunctionModes::source(int64_t index) {
  return t.tree->child(t.lifter.constant(mode_functions().at), lift::Access::kFunctionMode, {}, index);
}

// The caller's modes lie below the recording mode, which does not see what they do: the recorded calls run under them
// again. From here on they lie above it, so the calls that they make are recorded, and the modes at run time do not
// matter.
void TorchFunctionModes::take() {
  std::vector<Ref> modes;
  const std::shared_ptr<c10::SafePyObject> recording = PythonTorchFunctionTLS::pop_stack();
  while (PythonTorchFunctionTLS::stack_len() > 0)
    modes.push_back(Ref::share(PythonTorchFunctionTLS::pop_stack()->ptr(getPyInterpreter())));
  PythonTorchFunctionTLS::push_onto_stack(recording);
  for (size_t i = modes.size(); i-- > 0;) {
    Ref mode = t.lifter.lift(modes[i], source(static_cast<int64_t>(modes.size() - 1 - i)));
    push(mode);
    modes_before_.push_back(std::move(mode));
  }
}

std::vector<Ref> TorchFunctionModes::now() const {
  std::vector<Ref> modes;
  for (int64_t i = modes_below(t.recorder.mode()) + 1; i < PythonTorchFunctionTLS::stack_len(); i++)
    modes.push_back(Ref::share(mode_at(i)));
  return modes;
}

bool TorchFunctionModes::note_exit() {
  if (modes_below(t.recorder.mode()) < 0) return false;  // unknown
  const std::vector<Ref> modes = now();
  size_t same = 0;
  while (same < modes.size() && same < modes_before_.size() && modes[same] == modes_before_[same]) same++;
  t.result.exit.popped_modes = modes_before_.size() - same;
  t.result.exit.pushed_modes.assign(modes.begin() + static_cast<ptrdiff_t>(same), modes.end());
  return std::all_of(t.result.exit.pushed_modes.begin(), t.result.exit.pushed_modes.end(),
                     [](const Ref& mode) { return is_device_context(mode.type()); });
}

Ref TorchFunctionModes::pop() {
  if (own == 0 || graph::is_top_mode(t.recorder.mode())) {
    t.result.wants_modes = !t.options.has_modes && own == 0 && modes_below(t.recorder.mode()) > 0;
    stop(report::Reason::native_call, "the call leaves a torch-function mode that it has not entered");
  }
  Ref mode = Ref::share(PythonTorchFunctionTLS::pop_stack()->ptr(getPyInterpreter()));
  own--;
  if (!is_device_context(mode.type())) {
    foreign--;
    last_popped_mode_ = mode.get();
  }
  return mode;
}

// The recording mode lies below the modes that the program entered, and is hidden from the program.
Ref TorchFunctionModes::mode_of_program(Borrowed callable, int64_t at) {
  const int64_t depth = PythonTorchFunctionTLS::stack_len(), below = modes_below(t.recorder.mode());
  if (at >= 0 && at < below) return t.lifter.lift(mode_at(at), source(at));
  if (below >= 0 && at >= below && at + 1 < depth) return Ref::share(mode_at(at + 1));
  PyErr_Clear();
  stop(report::Reason::native_call, native_name(callable));
}

// `with torch.device("cuda"):` pushes a DeviceContext that torch makes for it.
void TorchFunctionModes::push_device(Borrowed device) {
  Borrowed type = mode_functions().device_context;
  PyObject* given[] = {nullptr, device.get()};
  push(call(t, {t.lifter.lift(type, t.lifter.constant(type)), given + 1, 1, {}}));
}

// The device of a bound method; null: it is not bound.
static Borrowed bound_device(const Call& call) {
  if (call.keyword_names || !PyCFunction_Check(call.callable.get())) return {};
  PyObject* device = PyCFunction_GET_SELF(call.callable.get());
  return device != nullptr && THPDevice_Check(device) ? device : nullptr;
}

bool register_function_modes(Handlers& handlers) {
  mode_functions();
  handlers.add("torch._C", "_push_on_torch_function_stack", [](Tracer& t, const Call& call) -> Ref {
    if (!call.has_positional(1)) return {};
    t.function_modes->push(call.arguments[0]);
    return Ref::share(Py_None);
  });
  handlers.add("torch._C", "_pop_torch_function_stack",
               [](Tracer& t, const Call& call) { return call.has_positional(0) ? t.function_modes->pop() : Ref(); });
  handlers.add(mode_functions().at, [](Tracer& t, const Call& call) -> Ref {
    if (!call.has_positional(1) || !PyLong_CheckExact(call.arguments[0])) return {};
    return t.function_modes->mode_of_program(call.callable, PyLong_AsLongLong(call.arguments[0]));
  });
  handlers.add_methods(&THPDeviceType, "__enter__", [](Tracer& t, const Call& call) -> Ref {
    Borrowed device = bound_device(call);
    if (!device || call.positional != 0) return {};
    t.function_modes->push_device(device);
    return Ref::share(device);
  });
  handlers.add_methods(&THPDeviceType, "__exit__", [](Tracer& t, const Call& call) -> Ref {
    if (!bound_device(call)) return {};
    (void)t.function_modes->pop();
    return Ref::share(Py_None);
  });
  return true;
}

}  // namespace alternator::trace
