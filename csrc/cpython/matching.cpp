// Structural pattern matching.
//
// Follows the logic of CPython's ceval.c.
// Copyright (c) 2001-2023 Python Software Foundation; All Rights Reserved. See LICENSES/PSF-2.0.txt.
#include "cpython/operations.h"
#include "py/names.h"

namespace alternator::cpython {

Ref match_keys(Borrowed mapping, Borrowed keys) {
  const Py_ssize_t count = PyTuple_GET_SIZE(keys.get());
  if (count == 0) return Ref::steal(PyTuple_New(0));
  // `get` does not trigger `__missing__` or a default factory.
  PyObject* method = nullptr;
  const bool unbound = _PyObject_GetMethod(mapping.get(), names::get, &method) != 0;
  Ref get = Ref::steal(method);
  if (!get) return {};
  Ref seen = Ref::steal(PySet_New(nullptr));
  Ref missing = seen ? Ref::steal(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type))) : Ref();
  Ref values = missing ? Ref::steal(PyTuple_New(count)) : Ref();
  if (!values) return {};
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* key = PyTuple_GET_ITEM(keys.get(), i);
    if (PySet_Contains(seen.get(), key) != 0 || PySet_Add(seen.get(), key) != 0) {
      if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "mapping pattern checks duplicate key (%R)", key);
      return {};
    }
    PyObject* arguments[] = {mapping.get(), key, missing.get()};
    PyObject* value = unbound ? PyObject_Vectorcall(get.get(), arguments, 3, nullptr)
                              : PyObject_Vectorcall(get.get(), arguments + 1, 2, nullptr);
    if (value == nullptr) return {};
    if (value == missing.get()) {
      Py_DECREF(value);
      return Ref::share(Py_None);
    }
    PyTuple_SET_ITEM(values.get(), i, value);
  }
  return values;
}

// Null without an error where the attribute is absent: no match.
static Ref match_attribute(Borrowed subject, Borrowed type, Borrowed name, Borrowed seen) {
  if (PySet_Contains(seen.get(), name.get()) != 0 || PySet_Add(seen.get(), name.get()) != 0) {
    if (!PyErr_Occurred()) {
      PyErr_Format(PyExc_TypeError, "%s() got multiple sub-patterns for attribute %R", type.as<PyTypeObject>()->tp_name,
                   name.get());
    }
    return {};
  }
  Ref attribute = Ref::steal(PyObject_GetAttr(subject.get(), name.get()));
  if (!attribute && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  return attribute;
}

// __match_args__, or null; `match_self` where the type is one of those that match themselves.
static Ref positional_names(Borrowed type, bool* match_self) {
  Ref names_tuple = Ref::steal(PyObject_GetAttr(type.get(), names::__match_args__));
  auto* cls = type.as<PyTypeObject>();
  if (names_tuple) {
    if (PyTuple_CheckExact(names_tuple.get())) return names_tuple;
    PyErr_Format(PyExc_TypeError, "%s.__match_args__ must be a tuple (got %s)", cls->tp_name,
                 Py_TYPE(names_tuple.get())->tp_name);
    return {};
  }
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return {};
  PyErr_Clear();
  *match_self = PyType_HasFeature(cls, _Py_TPFLAGS_MATCH_SELF) != 0;
  return Ref::steal(PyTuple_New(0));
}

static bool match_positional(Borrowed subject, Borrowed type, Py_ssize_t count, Borrowed seen, Borrowed attributes) {
  bool match_self = false;
  Ref match_args = positional_names(type, &match_self);
  if (!match_args) return false;
  const Py_ssize_t allowed = match_self ? 1 : PyTuple_GET_SIZE(match_args.get());
  if (allowed < count) {
    PyErr_Format(PyExc_TypeError, "%s() accepts %d positional sub-pattern%s (%d given)",
                 type.as<PyTypeObject>()->tp_name, static_cast<int>(allowed), allowed == 1 ? "" : "s",
                 static_cast<int>(count));
    return false;
  }
  if (match_self) return PyList_Append(attributes.get(), subject.get()) == 0;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* name = PyTuple_GET_ITEM(match_args.get(), i);
    if (!PyUnicode_CheckExact(name)) {
      PyErr_Format(PyExc_TypeError, "__match_args__ elements must be strings (got %s)", Py_TYPE(name)->tp_name);
      return false;
    }
    Ref attribute = match_attribute(subject, type, name, seen);
    if (!attribute || PyList_Append(attributes.get(), attribute.get()) < 0) return false;
  }
  return true;
}

Ref match_class(Borrowed subject, Borrowed type, Py_ssize_t positional, Borrowed keyword_names) {
  if (!PyType_Check(type.get())) {
    PyErr_Format(PyExc_TypeError, "called match pattern must be a type");
    return {};
  }
  if (PyObject_IsInstance(subject.get(), type.get()) <= 0) return {};
  Ref seen = Ref::steal(PySet_New(nullptr));
  Ref attributes = seen ? Ref::steal(PyList_New(0)) : Ref();
  if (!attributes) return {};
  if (positional > 0 && !match_positional(subject, type, positional, seen, attributes)) return {};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keyword_names.get()); i++) {
    Ref attribute = match_attribute(subject, type, PyTuple_GET_ITEM(keyword_names.get(), i), seen);
    if (!attribute || PyList_Append(attributes.get(), attribute.get()) < 0) return {};
  }
  return Ref::steal(PyList_AsTuple(attributes.get()));
}

}  // namespace alternator::cpython
