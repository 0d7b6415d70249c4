// Class creation, and dir().
#include "trace/opcodes/class_creation.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"

#include "cpython/objects.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/namespaces.h"
#include "py/lasting.h"
#include "trace/calls/natives.h"

namespace alternator::trace {

static Borrowed self_of(Borrowed builtin) {
  return PyCFunction_Check(builtin.get()) ? Borrowed(PyCFunction_GET_SELF(builtin.get())) : Borrowed();
}

// A builtin method of this definition, bound to a class.
static bool is_method_of_class(Borrowed callable, const PyMethodDef* definition) {
  Borrowed self = self_of(callable);
  return self && PyType_Check(self.get()) && callable.as<PyCFunctionObject>()->m_ml == definition;
}

// Every builtin __new__ has the same definition.
static const PyMethodDef* new_method() {
  static constinit Lasting<PyMethodDef*> lasting;
  return lasting.get([] {
    PyObject* type = reinterpret_cast<PyObject*>(&PyType_Type);
    return checked(PyObject_GetAttrString(type, "__new__")).as<PyCFunctionObject>()->m_ml;
  });
}

void ClassCreation::begin(Borrowed bases) {
  if (!PyTuple_Check(bases.get())) return;
  if (PyTuple_GET_SIZE(bases.get()) == 0) t.lifter.classes->begin(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bases.get()); i++)
    t.lifter.classes->begin(PyTuple_GET_ITEM(bases.get(), i));
}

// type.__new__ of any metaclass, or the builtin behind a class statement.
bool ClassCreation::begin_call(Borrowed callable, PyObject* const* arguments, size_t positional) {
  const Natives& natives = Natives::table();
  if (callable == Borrowed(natives.build_class)) {
    Ref origin_name = checked(PyUnicode_InternFromString("__origin__"));
    t.lifter.classes->begin(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
    for (size_t i = 2; i < positional; i++) {
      Borrowed base = arguments[i];
      t.lifter.classes->begin(base);
      if (PyType_Check(base.get())) continue;
      // A generic alias stands for its class, and for typing.Generic.
      Ref origin = Ref::steal(PyObject_GetAttr(base.get(), origin_name.get()));
      if (origin) t.lifter.classes->begin(origin);
      PyErr_Clear();
      t.lifter.classes->begin(natives.generic);
    }
    return true;
  }
  if (positional == 4 && PyType_Check(arguments[0]) && is_method_of_class(callable, new_method()) &&
      PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(arguments[0]), &PyType_Type)) {
    begin(arguments[2]);
    return true;
  }
  return false;
}

void ClassCreation::finish(Borrowed cls) {
  if (!PyType_Check(cls.get())) return;
  if (!t.lifter.made_here(cls)) {
    // A metaclass may return a pre-existing class.
    if (!t.lifter.classes->existed_before(cls)) stop(report::Reason::preexisting_subclass, native_name(cls));
    return;
  }
  // A pre-existing abstract base class queries its subclasses, but does not know those that the trace made. An instance
  // test against it is a break.
  Ref hook = checked(PyUnicode_InternFromString("__subclasshook__"));
  if (alternator::contains(cpython::own_dict(cls.as<PyTypeObject>()), hook).value()) {
    PyObject* bases = cls.as<PyTypeObject>()->tp_mro;
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(bases); i++) {
      Borrowed base = PyTuple_GET_ITEM(bases, i);
      if ((base.as<PyTypeObject>()->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !t.lifter.made_here(base))
        hooked_bases.push_back(base.as<PyTypeObject>());
    }
  }
  t.lifter.classes->finish(cls);
}

// _abc_init itself reads what the bases declare as abstract.
void ClassCreation::guard_abstract_methods(Borrowed cls) {
  Ref declared_name = checked(PyUnicode_InternFromString("__abstractmethods__"));
  auto* type = cls.as<PyTypeObject>();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_bases); i++) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_bases, i));
    Borrowed declared = PyDict_GetItemWithError(cpython::own_dict(base), declared_name.get());
    if (!declared || base == &PyType_Type) continue;  // type has the descriptor for all classes there
    Ref names = checked(PySequence_Tuple(declared.get()));
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(names.get()); k++)
      t.lifter.classes->attribute(type, PyTuple_GET_ITEM(names.get(), k));
  }
}

void check_class_call(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t count) {
  const Natives& natives = Natives::table();
  if (callable == Borrowed(natives.abc_init) && count == 1 && PyType_Check(arguments[0]))
    return t.classes->guard_abstract_methods(arguments[0]);
  const PyMethodDef* subclasses = reinterpret_cast<PyMethodDescrObject*>(natives.subclasses)->d_method;
  if (is_method_of_class(callable, subclasses) ||
      (callable == Borrowed(natives.subclasses) && count == 1 && PyType_Check(arguments[0]))) {
    Borrowed cls = callable == Borrowed(natives.subclasses) ? Borrowed(arguments[0]) : self_of(callable);
    if (!t.lifter.made_here(cls)) stop(report::Reason::native_call, "the subclasses of a pre-existing class");
  }
}

// dir(object): the names in its own dict and in those of its classes, which are guarded.
Ref ClassCreation::names_of(Borrowed object) {
  Ref hook_name = checked(PyUnicode_InternFromString("__dir__"));
  Borrowed hook = t.lifter.classes->attribute(object.type(), hook_name);
  const bool is_type = PyType_Check(object.get());
  if (PyFunction_Check(hook.get())) {
    PyObject* arguments[] = {nullptr, object.get()};
    Ref names =
        checked(PySequence_List(call(t, {t.lifter.lift(hook, t.lifter.constant(hook)), arguments + 1, 1, {}}).get()));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names.get()); i++) {
      if (!PyUnicode_CheckExact(PyList_GET_ITEM(names.get(), i)))
        stop(report::Reason::native_call, "dir of an object whose __dir__ gives other things than names");
    }
    check_status(PyList_Sort(names.get()));
    return names;
  }
  if (!Py_IS_TYPE(hook.get(), &PyMethodDescr_Type)) stop(report::Reason::native_call, "dir with an unusual __dir__");
  lift::Known* known = t.lifter.known(object);
  if (t.lifter.classes->has_writes() || graph::is_tensor(object) || PyFunction_Check(object.get()) ||
      (known != nullptr && known->opaque) || (is_type && object.type() != &PyType_Type)) {
    stop(report::Reason::native_call, "dir");
  }
  Ref names = checked(PySet_New(nullptr));
  auto add = [&](Borrowed dict) { check_status(_PySet_Update(names.get(), dict.get())); };
  if (PyModule_Check(object.get())) {
    if (PyDict_GetItemString(PyModule_GetDict(object.get()), "__dir__") != nullptr)
      stop(report::Reason::native_call, "dir of a module with a __dir__ of its own");
    lift::Shadow& name_space = t.lifter.namespaces->of_globals(PyModule_GetDict(object.get()));
    t.lifter.containers->guard_keys(name_space);
    add(name_space.copy);
  } else {
    if (!is_type) {
      if (lift::Shadow* attributes = known != nullptr ? t.lifter.namespaces->attributes(object) : nullptr) {
        t.lifter.containers->guard_keys(*attributes);
        add(attributes->copy);
      } else if (PyObject** dict = _PyObject_GetDictPtr(object.get()); dict != nullptr && *dict != nullptr) {
        add(*dict);
      }
    }
    PyTypeObject* type = is_type ? object.as<PyTypeObject>() : object.type();
    for (Py_ssize_t i = 0; type->tp_mro != nullptr && i < PyTuple_GET_SIZE(type->tp_mro); i++) {
      auto* cls = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
      t.lifter.classes->guard_names(cls);
      add(cpython::own_dict(cls));
    }
  }
  Ref list = checked(PySequence_List(names.get()));
  check_status(PyList_Sort(list.get()));
  return list;
}

}  // namespace alternator::trace
