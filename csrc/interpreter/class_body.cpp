// Follows the logic of CPython's bltinmodule.c.
// Copyright (c) 2001-2023 Python Software Foundation; All Rights Reserved. See LICENSES/PSF-2.0.txt.
#include "interpreter/class_body.h"

namespace alternator {

// The most derived metaclass. Conflicts were reported before the body ran.
static PyObject* most_derived(PyObject* metaclass, PyObject* bases) {
  auto* winner = reinterpret_cast<PyTypeObject*>(metaclass);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bases); i++) {
    PyTypeObject* candidate = Py_TYPE(PyTuple_GET_ITEM(bases, i));
    if (PyType_IsSubtype(candidate, winner)) winner = candidate;
  }
  return reinterpret_cast<PyObject*>(winner);
}

static int check_class_cell(PyObject* cell, PyObject* cls, PyObject* name) {
  if (!PyType_Check(cls) || !PyCell_Check(cell)) return 0;
  PyObject* in_cell = PyCell_GET(cell);
  if (in_cell == cls) return 0;
  if (in_cell == nullptr) {
    PyErr_Format(PyExc_RuntimeError,
                 "__class__ not set defining %.200R as %.200R. Was __classcell__ propagated to type.__new__?", name,
                 cls);
  } else {
    PyErr_Format(PyExc_TypeError, "__class__ set to %.200R defining %.200R as %.200R", in_cell, name, cls);
  }
  return -1;
}

Ref finish_class_body(PyObject* const* arguments, Py_ssize_t count, Borrowed keyword_names, Borrowed name_space,
                      Borrowed cell) {
  const Py_ssize_t named = keyword_names ? PyTuple_GET_SIZE(keyword_names.get()) : 0;
  PyObject* name = arguments[1];
  Ref bases = Ref::steal(PyTuple_New(count - named - 2));
  Ref keywords = Ref::steal(PyDict_New());
  if (!bases || !keywords) return {};
  for (Py_ssize_t i = 2; i < count - named; i++) PyTuple_SET_ITEM(bases.get(), i - 2, Py_NewRef(arguments[i]));
  Ref metaclass = Ref::share(reinterpret_cast<PyObject*>(
      PyTuple_GET_SIZE(bases.get()) > 0 ? Py_TYPE(PyTuple_GET_ITEM(bases.get(), 0)) : &PyType_Type));
  for (Py_ssize_t i = 0; i < named; i++) {
    PyObject* key = PyTuple_GET_ITEM(keyword_names.get(), i);
    PyObject* value = arguments[count - named + i];
    if (PyUnicode_CompareWithASCIIString(key, "metaclass") == 0) {
      metaclass = Ref::share(value);
    } else if (PyDict_SetItem(keywords.get(), key, value) < 0) {
      return {};
    }
  }
  if (PyType_Check(metaclass.get())) metaclass = Ref::share(most_derived(metaclass.get(), bases.get()));
  PyObject* call_arguments[] = {name, bases.get(), name_space.get()};
  Ref cls = Ref::steal(PyObject_VectorcallDict(metaclass.get(), call_arguments, 3,
                                               PyDict_GET_SIZE(keywords.get()) > 0 ? keywords.get() : nullptr));
  if (!cls || check_class_cell(cell.get(), cls.get(), name) < 0) return {};
  return cls;
}

}  // namespace alternator
