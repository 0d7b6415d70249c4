// Name lookups and their messages: globals, unbound variables, bad calls.
//
// Follows the logic of CPython's ceval.c.
// Copyright (c) 2001-2023 Python Software Foundation; All Rights Reserved. See LICENSES/PSF-2.0.txt.
#include "cpython/operations.h"
#include "py/names.h"

namespace alternator::cpython {

void set_name_error(PyObject* error_type, const char* format, Borrowed name) {
  const char* text = name ? PyUnicode_AsUTF8(name.get()) : nullptr;
  if (text == nullptr) return;
  PyErr_Format(error_type, format, text);
  if (error_type != PyExc_NameError) return;
  Ref error = take_raised();
  if (PyErr_GivenExceptionMatches(error.get(), PyExc_NameError) &&
      reinterpret_cast<PyNameErrorObject*>(error.get())->name == nullptr) {
    // The name serves "did you mean" only: failing to set it must not hide the NameError.
    if (PyObject_SetAttr(error.get(), names::name, name.get()) < 0) PyErr_Clear();
  }
  set_raised(std::move(error));
}

void set_not_defined(Borrowed name) { set_name_error(PyExc_NameError, "name '%.200s' is not defined", name); }

void set_unbound(PyCodeObject* code, int index) {
  if (PyErr_Occurred()) return;
  Borrowed name = PyTuple_GET_ITEM(code->co_localsplusnames, index);
  if (index < code->co_nlocalsplus - code->co_nfreevars) {
    set_name_error(PyExc_UnboundLocalError, "cannot access local variable '%s' where it is not associated with a value",
                   name);
  } else {
    set_name_error(PyExc_NameError,
                   "cannot access free variable '%s' where it is not associated with a value in enclosing scope", name);
  }
}

void rewrite_kwargs_error(Borrowed function, Borrowed kwargs) {
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    Ref text = Ref::steal(_PyObject_FunctionStr(function.get()));
    if (text) {
      PyErr_Format(PyExc_TypeError, "%U argument after ** must be a mapping, not %.200s", text.get(),
                   Py_TYPE(kwargs.get())->tp_name);
    }
  } else if (PyErr_ExceptionMatches(PyExc_KeyError)) {
    Ref key = take_merge_conflict_key();
    if (!key) return;
    Ref text = Ref::steal(_PyObject_FunctionStr(function.get()));
    if (text) PyErr_Format(PyExc_TypeError, "%U got multiple values for keyword argument '%S'", text.get(), key.get());
  }
}

int check_star_args(Borrowed function, Borrowed args) {
  if (Py_TYPE(args.get())->tp_iter != nullptr || PySequence_Check(args.get())) return 0;
  PyErr_Clear();
  Ref text = Ref::steal(_PyObject_FunctionStr(function.get()));
  if (text) {
    PyErr_Format(PyExc_TypeError, "%U argument after * must be an iterable, not %.200s", text.get(),
                 Py_TYPE(args.get())->tp_name);
  }
  return -1;
}

Ref lookup_mapping(Borrowed mapping, Borrowed name) {
  if (PyDict_CheckExact(mapping.get())) return Ref::share(PyDict_GetItemWithError(mapping.get(), name.get()));
  Ref value = Ref::steal(PyObject_GetItem(mapping.get(), name.get()));
  if (!value && PyErr_ExceptionMatches(PyExc_KeyError)) PyErr_Clear();
  return value;
}

Ref load_global(Borrowed globals, Borrowed builtins, Borrowed name) {
  Ref value;
  if (PyDict_CheckExact(globals.get()) && PyDict_CheckExact(builtins.get())) [[likely]] {
    PyObject* found = PyDict_GetItemWithError(globals.get(), name.get());
    if (found == nullptr && !PyErr_Occurred()) found = PyDict_GetItemWithError(builtins.get(), name.get());
    value = Ref::share(found);
  } else {
    value = lookup_mapping(globals, name);
    if (!value && !PyErr_Occurred()) value = lookup_mapping(builtins, name);
  }
  if (!value && !PyErr_Occurred()) set_not_defined(name);
  return value;
}

Ref load_build_class(Borrowed builtins) {
  Ref value = lookup_mapping(builtins, names::__build_class__);
  if (!value && !PyErr_Occurred()) PyErr_SetString(PyExc_NameError, "__build_class__ not found");
  return value;
}

int setup_annotations(Borrowed locals) {
  if (!locals) {
    PyErr_SetString(PyExc_SystemError, "no locals found when setting up annotations");
    return -1;
  }
  Ref annotations = lookup_mapping(locals, names::__annotations__);
  if (annotations) return 0;
  if (PyErr_Occurred()) return -1;
  annotations = Ref::steal(PyDict_New());
  return annotations ? PyObject_SetItem(locals.get(), names::__annotations__, annotations.get()) : -1;
}

}  // namespace alternator::cpython
