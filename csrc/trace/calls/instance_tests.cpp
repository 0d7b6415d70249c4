// isinstance() and issubclass(): what decides them is guarded.
#include "trace/calls/instance_tests.h"
#include "trace/calls/reflective_builtins.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/class_creation.h"
#include "trace/torch/legacy_tensors.h"

#include "cpython/objects.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/lazy_objects.h"
#include "trace/calls/natives.h"

namespace alternator::trace {

namespace {

bool is_abstract(Borrowed cls) { return PyType_IsSubtype(cls.type(), lift::known_types().abc_meta) != 0; }

// Whether the answer of an abstract base class depends on registered and real subclasses and on special methods alone.
bool answers_by_structure(Borrowed cls) {
  Ref hook_name = checked(PyUnicode_InternFromString("__subclasshook__"));
  PyObject* hook = _PyType_Lookup(cls.as<PyTypeObject>(), hook_name.get());
  if (hook == nullptr || !Py_IS_TYPE(hook, &PyClassMethod_Type)) return true;
  Ref function = checked(PyObject_GetAttrString(hook, "__func__"));
  if (!PyFunction_Check(function.get())) return false;
  Ref module = Ref::steal(PyObject_GetAttrString(function.get(), "__module__"));
  PyErr_Clear();
  return module && PyUnicode_Check(module.get()) &&
         PyUnicode_CompareWithASCIIString(module.get(), "collections.abc") == 0;
}

bool is_python_function(PyTypeObject* type, const char* name) {
  PyObject* found = _PyType_Lookup(type, checked(PyUnicode_InternFromString(name)).get());
  return found != nullptr && PyFunction_Check(found);
}

bool is_python_hook(PyTypeObject* metaclass, const char* name) {
  PyObject* found = _PyType_Lookup(metaclass, checked(PyUnicode_InternFromString(name)).get());
  if (found == nullptr || !PyFunction_Check(found)) return false;
  Ref module = Ref::steal(PyObject_GetAttrString(found, "__module__"));
  PyErr_Clear();
  return !module || !PyUnicode_Check(module.get()) || PyUnicode_CompareWithASCIIString(module.get(), "abc") != 0;
}

// A class, or a tuple of classes, for which isinstance() calls no hook.
bool are_simple(Borrowed classes) {
  if (Py_IS_TYPE(classes.get(), &PyType_Type)) return true;
  if (!PyTuple_CheckExact(classes.get())) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes.get()); i++) {
    if (!Py_IS_TYPE(PyTuple_GET_ITEM(classes.get(), i), &PyType_Type)) return false;
  }
  return true;
}

}  // namespace

Ref call_on_partly_read(Tracer& t, const Call& call) {
  const Natives& natives = Natives::table();
  if (call.callable.get() == natives.len && call.has_positional(1) && t.lifter.lazy->is_open(call.arguments[0])) {
    t.lifter.lazy->guard_open_length(call.arguments[0]);
    return checked(PyLong_FromSsize_t(Py_SIZE(call.arguments[0])));
  }
  if (call.callable.get() != natives.isinstance || !call.has_positional(2)) return {};
  PyObject *const subject = call.arguments[0], *const classes = call.arguments[1];
  if (!t.lifter.lazy->is_partly_read(subject)) return {};
  // Builtin containers do not override __class__.
  if ((Py_TYPE(subject)->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 && are_simple(classes))
    return Ref::share(PyObject_IsInstance(subject, classes) == 1 ? Py_True : Py_False);
  t.lifter.escape(subject);
  return {};
}

// isinstance and issubclass against abstract base classes. Their answers come from registries and caches; an answer
// holds as long as the ABC cache token and the special methods of the subject's class stay the same.
bool check_instance_test(Tracer& t, Borrowed subject_class, Borrowed classes) {
  if (PyTuple_Check(classes.get())) {
    size_t abstract = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes.get()); i++)
      abstract += check_instance_test(t, subject_class, PyTuple_GET_ITEM(classes.get(), i)) ? 1 : 0;
    // Other hooks among them must be traced.
    for (Py_ssize_t i = 0; abstract > 0 && i < PyTuple_GET_SIZE(classes.get()); i++) {
      PyTypeObject* metaclass = Py_TYPE(PyTuple_GET_ITEM(classes.get(), i));
      if (is_python_hook(metaclass, "__instancecheck__")) stop(report::Reason::native_call, "a mixed instance test");
    }
    return abstract > 0;
  }
  if (is_tensor_type(classes)) stop(report::Reason::native_call, "an instance test against a tensor type");
  guard_order_of_bases(t, subject_class);
  (void)t.lifter.classes->use_special_methods(
      classes.type());  // __instancecheck__ and __subclasscheck__ are the metaclass's
  if (!PyType_Check(classes.get()) || !is_abstract(classes)) return false;
  // User hooks that would run as native callbacks, on classes that are not lifted.
  if (!answers_by_structure(classes) || is_python_hook(classes.type(), "__instancecheck__") ||
      is_python_hook(classes.type(), "__subclasscheck__")) {
    // Nothing else has tested against a class that the trace made: its registry and its caches belong to the trace, its
    // hooks are traced.
    if (t.lifter.made_here(classes)) {
      (void)t.lifter.classes->use_special_methods(subject_class.as<PyTypeObject>());
      return false;
    }
    stop(report::Reason::native_call, "an instance test against an abstract base class");
  }
  for (PyTypeObject* base : t.classes->hooked_bases) {
    if (PyType_IsSubtype(base, classes.as<PyTypeObject>()))
      stop(report::Reason::native_call, "an instance test against a class with subclasses that the call has made");
  }
  // A user-defined __class__ would be read natively.
  auto* subject = subject_class.as<PyTypeObject>();
  if (Borrowed(t.lifter.classes->attribute(subject, checked(PyUnicode_InternFromString("__class__")))) !=
          Borrowed(Natives::table().object_class) ||
      is_python_function(subject, "__getattribute__") || is_python_function(subject, "__getattr__")) {
    stop(report::Reason::native_call, "an instance test of an object that overrides __class__");
  }
  (void)query(t, Natives::table().abc_token);
  (void)t.lifter.classes->use_special_methods(subject);
  return true;
}

void guard_order_of_bases(Tracer& t, Borrowed cls) {
  auto* type = cls.as<PyTypeObject>();
  if ((type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0 || t.lifter.made_here(cls)) return;
  lift::Source* mro = t.tree->child(t.lifter.constant(cls), lift::Access::kMro);
  t.tree->guard(mro, {lift::GuardKind::kIs, Ref::share(type->tp_mro)});
}

// type.__instancecheck__ and type.__subclasscheck__, as a metaclass's own hooks call them: the test without any hook.
Ref real_instance_test(Tracer& t, Borrowed callable, Borrowed subject) {
  Borrowed cls = PyCFunction_GET_SELF(callable.get());
  if (!cls || !PyType_Check(cls.get())) return {};
  const char* name = callable.as<PyCFunctionObject>()->m_ml->ml_name;
  const bool instance = strcmp(name, "__instancecheck__") == 0;
  if (!instance && (strcmp(name, "__subclasscheck__") != 0 || !PyType_Check(subject.get()))) return {};
  Borrowed method = PyDict_GetItemString(cpython::own_dict(&PyType_Type), name);
  if (!method || !Py_IS_TYPE(method.get(), &PyMethodDescr_Type) ||
      method.as<PyMethodDescrObject>()->d_method != callable.as<PyCFunctionObject>()->m_ml) {
    return {};
  }
  PyTypeObject* type = instance ? subject.type() : subject.as<PyTypeObject>();
  if (instance && !PyType_IsSubtype(type, cls.as<PyTypeObject>())) {
    // Then its __class__ is read, which a class may override.
    Borrowed answer = t.lifter.classes->attribute(type, checked(PyUnicode_InternFromString("__class__")));
    if (!answer || answer.get() != PyDict_GetItemString(cpython::own_dict(&PyBaseObject_Type), "__class__")) return {};
  }
  return Ref::share(PyType_IsSubtype(type, cls.as<PyTypeObject>()) ? Py_True : Py_False);
}

}  // namespace alternator::trace
