// Unpacking assignments.
//
// Follows the logic of CPython's ceval.c.
// Copyright (c) 2001-2023 Python Software Foundation; All Rights Reserved. See LICENSES/PSF-2.0.txt.
#include "cpython/operations.h"

namespace alternator::cpython {

static void set_too_few(int before, int after, Py_ssize_t got) {
  if (after < 0) {
    PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected %d, got %zd)", before, got);
  } else {
    PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %d, got %zd)", before + after, got);
  }
}

static bool unpack_values(Borrowed iterator, int before, int after, PyObject**& top) {
  for (int i = 0; i < before; i++) {
    PyObject* value = PyIter_Next(iterator.get());
    if (value == nullptr) {
      if (!PyErr_Occurred()) set_too_few(before, after, i);
      return false;
    }
    *--top = value;
  }
  if (after < 0) {
    Ref excess = Ref::steal(PyIter_Next(iterator.get()));
    if (excess) PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", before);
    return !excess && !PyErr_Occurred();
  }
  PyObject* rest = PySequence_List(iterator.get());
  if (rest == nullptr) return false;
  *--top = rest;
  const Py_ssize_t length = PyList_GET_SIZE(rest);
  if (length < after) {
    set_too_few(before, after, before + length);
    return false;
  }
  for (int i = after; i > 0; i--) *--top = PyList_GET_ITEM(rest, length - i);
  Py_SET_SIZE(rest, length - after);  // the tail moved to the stack, references and all
  return true;
}

bool unpack_iterable(Borrowed iterable, int before, int after, PyObject** top) {
  Ref iterator = Ref::steal(PyObject_GetIter(iterable.get()));
  if (!iterator) {
    PyTypeObject* type = iterable.type();
    if (PyErr_ExceptionMatches(PyExc_TypeError) && type->tp_iter == nullptr && !PySequence_Check(iterable.get())) {
      PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", type->tp_name);
    }
    return false;
  }
  PyObject** filled = top;
  if (unpack_values(iterator, before, after, filled)) return true;
  for (; filled < top; filled++) Py_DECREF(*filled);
  return false;
}

}  // namespace alternator::cpython
