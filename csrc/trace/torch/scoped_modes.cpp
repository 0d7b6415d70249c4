#include "trace/torch/scoped_modes.h"
#include "trace/calls/reflective_builtins.h"

#include "py/import.h"
#include "py/lasting.h"
#include "trace/calls/handlers.h"
#include "trace/calls/natives.h"
#include "trace/core/tracer.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/InferenceMode.h>

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

// A function of a profiler class, or what a decorator of that module has wrapped.
void add_profiler_method(Handlers& handlers, Borrowed method, Borrowed module_dict, Handler handler) {
  for (Ref function = Ref::share(method); function && PyFunction_Check(function.get());) {
    if (Borrowed(PyFunction_GET_GLOBALS(function.get())) == module_dict) handlers.add(function, handler);
    function = Ref::steal(PyObject_GetAttrString(function.get(), "__wrapped__"));
    if (!function) PyErr_Clear();
  }
}

// Classes that start and stop profilers. They run eagerly as a whole: a profiler has to observe the compiled code
// around it.
void add_profilers(Handlers& handlers) {
  constexpr Handler kRefuse = [](Tracer&, const Call& call) -> Ref {
    stop(report::Reason::native_call, native_name(call.callable));
  };
  for (const char* module_name : {"torch.profiler.profiler", "torch.autograd.profiler"}) {
    Ref module = import_module(module_name);
    Borrowed module_dict = PyModule_GetDict(module.get());
    for (const char* name : {"profile", "_KinetoProfile", "emit_nvtx", "emit_itt", "ExecutionTraceObserver"}) {
      Borrowed cls = PyDict_GetItemString(module_dict.get(), name);
      if (!cls || !PyType_Check(cls.get())) continue;
      handlers.add(cls, kRefuse);
      PyObject *key, *value;
      for (Py_ssize_t at = 0; PyDict_Next(cls.as<PyTypeObject>()->tp_dict, &at, &key, &value) != 0;) {
        add_profiler_method(handlers, value, module_dict, kRefuse);
        for (const char* part : {"__func__", "fget", "fset"}) {  // of class and static methods, and properties
          if (PyFunction_Check(value) || PyType_Check(value)) continue;
          Ref method = Ref::steal(PyObject_GetAttrString(value, part));
          if (!method) PyErr_Clear();
          if (method) add_profiler_method(handlers, method, module_dict, kRefuse);
        }
      }
    }
  }
}

// record_function only labels a profile, and does nothing where no profiler runs. A graph does not contain it, not even
// where breaks are disallowed.
void check_no_profiler(Tracer& t, Borrowed callable) {
  static constinit Lasting<Ref> enabled;
  const Ref& is_enabled = enabled.get(
      [] { return checked(PyObject_GetAttrString(import_module("torch._C._autograd").get(), "_profiler_enabled")); });
  if (query(t, is_enabled).get() == Py_True && t.options.may_break)
    stop(report::Reason::native_call, native_name(callable) + ", while a profiler is running");
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

bool register_scoped_modes(Handlers& handlers) {
  handlers.add("torch._C", "_InferenceMode", [](Tracer&, const Call& call) -> Ref {
    if (!call.has_positional(1) || !PyBool_Check(call.arguments[0])) return {};
    Ref made = checked(inference_scope_type.tp_alloc(&inference_scope_type, 0));
    made.as<InferenceScope>()->mode = call.arguments[0] == Py_True;
    return made;
  });
  handlers.add("torch._C", "DisableTorchFunctionSubclass", [](Tracer&, const Call& call) -> Ref {
    if (!call.has_positional(0)) return {};
    return checked(subclass_scope_type.tp_alloc(&subclass_scope_type, 0));
  });
  Ref module = import_module("torch.autograd.profiler");
  Ref recorded = checked(PyObject_GetAttrString(module.get(), "record_function"));
  handlers.add_methods(recorded.as<PyTypeObject>(), "__enter__", [](Tracer& t, const Call& call) -> Ref {
    if (call.positional == 0 || call.keyword_names) return {};
    check_no_profiler(t, call.callable);
    t.scopes->open(call.arguments[0]);
    return Ref::share(call.arguments[0]);
  });
  handlers.add_methods(recorded.as<PyTypeObject>(), "__exit__", [](Tracer& t, const Call& call) -> Ref {
    if (call.positional == 0 || call.keyword_names) return {};
    check_no_profiler(t, call.callable);
    t.scopes->close(call.arguments[0]);
    return Ref::share(Py_None);
  });
  add_profilers(handlers);
  return true;
}

}  // namespace alternator::trace
