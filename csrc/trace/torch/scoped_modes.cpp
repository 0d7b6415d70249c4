#include "trace/torch/scoped_modes.h"
#include "trace/calls/call_dispatch.h"

#include "trace/calls/natives.h"
#include "trace/core/tracer.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace alternator::trace {

namespace {

struct InferenceScope {
  PyObject_HEAD bool mode;
  bool entered;
  alignas(c10::InferenceMode) unsigned char guard[sizeof(c10::InferenceMode)];
};

c10::InferenceMode* guard_of(InferenceScope* scope) {
  return std::launder(reinterpret_cast<c10::InferenceMode*>(scope->guard));
}

PyObject* enter(PyObject* self, PyObject*) {
  Tracer* tracer = Tracer::current();
  auto* scope = reinterpret_cast<InferenceScope*>(self);
  if (tracer == nullptr || scope->entered) {
    PyErr_SetString(PyExc_SystemError, "alternator: a mode of a trace is entered outside of it, or twice");
    return nullptr;
  }
  return guarded([&]() -> Ref {
    tracer->scopes->open(self);
    new (scope->guard) c10::InferenceMode(scope->mode);
    scope->entered = true;
    return Ref::share(Py_None);
  });
}

PyObject* leave(PyObject* self, PyObject*) {
  auto* scope = reinterpret_cast<InferenceScope*>(self);
  if (scope->entered) guard_of(scope)->~InferenceMode();
  scope->entered = false;
  if (Tracer* tracer = Tracer::current()) tracer->scopes->close(self);
  return Py_NewRef(Py_None);
}

// torch classes that start and stop profilers.
bool is_profiler_class(std::string_view name) {
  using namespace std::string_view_literals;
  constexpr std::array kClasses = {"profile"sv, "_KinetoProfile"sv, "emit_nvtx"sv, "emit_itt"sv,
                                   "ExecutionTraceObserver"sv};
  return std::find(kClasses.begin(), kClasses.end(), name) != kClasses.end();
}

std::string_view text_of(Borrowed text) {
  const char* utf8 = text && PyUnicode_Check(text.get()) ? PyUnicode_AsUTF8(text.get()) : nullptr;
  PyErr_Clear();
  return utf8 != nullptr ? utf8 : std::string_view();
}

// A profiler class, or a method of one.
bool is_of_profiler(Borrowed callable) {
  auto is_module = [](std::string_view name) {
    return name == "torch.profiler.profiler" || name == "torch.autograd.profiler";
  };
  if (PyFunction_Check(callable.get())) {
    const std::string_view name = text_of(callable.as<PyFunctionObject>()->func_qualname);
    const size_t dot = name.find('.');
    if (dot == std::string_view::npos || !is_profiler_class(name.substr(0, dot))) return false;
    return is_module(text_of(PyDict_GetItemString(PyFunction_GET_GLOBALS(callable.get()), "__name__")));
  }
  if (!PyType_Check(callable.get()) || !is_profiler_class(callable.as<PyTypeObject>()->tp_name)) return false;
  PyObject* dict = callable.as<PyTypeObject>()->tp_dict;
  return dict != nullptr && is_module(text_of(PyDict_GetItemString(dict, "__module__")));
}

struct SubclassScope {
  PyObject_HEAD at::impl::TorchFunctionDisabledState before;
};

PyObject* enter_subclass_scope(PyObject* self, PyObject*) {
  Tracer* tracer = Tracer::current();
  if (tracer == nullptr) {
    PyErr_SetString(PyExc_SystemError, "alternator: a mode of a trace is entered outside of it");
    return nullptr;
  }
  return guarded([&]() -> Ref {
    using at::impl::PythonTorchFunctionTLS;
    tracer->scopes->open(self);
    auto& before = reinterpret_cast<SubclassScope*>(self)->before;
    before = PythonTorchFunctionTLS::get_disabled_state();
    if (before == at::impl::TorchFunctionDisabledState::ENABLED)
      PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::SUBCLASSES_DISABLED);
    return Ref::share(Py_None);
  });
}

PyObject* leave_subclass_scope(PyObject* self, PyObject*) {
  at::impl::PythonTorchFunctionTLS::set_disabled_state(reinterpret_cast<SubclassScope*>(self)->before);
  if (Tracer* tracer = Tracer::current()) tracer->scopes->close(self);
  return Py_NewRef(Py_None);
}

}  // namespace

PyTypeObject subclass_scope_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject inference_scope_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

int init_modes() {
  static PyMethodDef methods[] = {
      {"__enter__", enter, METH_NOARGS, nullptr}, {"__exit__", leave, METH_VARARGS, nullptr}, {}};
  inference_scope_type.tp_name = "torch._C._InferenceMode";
  inference_scope_type.tp_basicsize = sizeof(InferenceScope);
  inference_scope_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  inference_scope_type.tp_methods = methods;
  static PyMethodDef subclass_methods[] = {{"__enter__", enter_subclass_scope, METH_NOARGS, nullptr},
                                           {"__exit__", leave_subclass_scope, METH_VARARGS, nullptr},
                                           {}};
  subclass_scope_type.tp_name = "torch._C.DisableTorchFunctionSubclass";
  subclass_scope_type.tp_basicsize = sizeof(SubclassScope);
  subclass_scope_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  subclass_scope_type.tp_methods = subclass_methods;
  return PyType_Ready(&inference_scope_type) < 0 ? -1 : PyType_Ready(&subclass_scope_type);
}

void ScopedModes::open(Borrowed scope) { open_.push_back({scope.get(), t.points_here()}); }

// A ContextVar token whose only reference is ours is not an open scope: nothing can reset it any more.
const OpenScope* ScopedModes::open() const {
  for (const OpenScope& one : open_) {
    if (!Py_IS_TYPE(one.scope, &PyContextToken_Type) || Py_REFCNT(one.scope) > 1) return &one;
  }
  return nullptr;
}

void ScopedModes::close(Borrowed scope) {
  for (size_t i = open_.size(); i-- > 0;) {
    if (open_[i].scope != scope.get()) continue;
    open_.erase(open_.begin() + static_cast<ptrdiff_t>(i));
    return;
  }
}

Ref ScopedModes::call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  const Natives& natives = Natives::table();
  if (callable == Borrowed(natives.inference_mode)) {
    if (keyword_names || positional != 1 || !PyBool_Check(arguments[0])) return {};
    Ref made = checked(inference_scope_type.tp_alloc(&inference_scope_type, 0));
    made.as<InferenceScope>()->mode = arguments[0] == Py_True;
    return made;
  }
  // It runs eagerly as a whole: a profiler has to observe the compiled code around it.
  if (is_of_profiler(callable)) stop(report::Reason::native_call, native_name(callable));
  if (callable == Borrowed(natives.subclasses_off) && positional == 0 && !keyword_names)
    return checked(subclass_scope_type.tp_alloc(&subclass_scope_type, 0));
  const bool begins = callable == Borrowed(natives.record_enter);
  if ((!begins && callable != Borrowed(natives.record_exit)) || positional == 0 || keyword_names) return {};
  // record_function only labels a profile, and does nothing where no profiler runs. A graph does not contain it, not
  // even where breaks are disallowed.
  if (query(t, natives.profiler_enabled).get() == Py_True && t.options.may_break)
    stop(report::Reason::native_call, native_name(callable) + ", while a profiler is running");
  if (begins) {
    open(arguments[0]);
    return Ref::share(arguments[0]);
  }
  close(arguments[0]);
  return Ref::share(Py_None);
}

}  // namespace alternator::trace
