// The import statement.
//
// Follows the logic of CPython's ceval.c.
// Copyright (c) 2001-2023 Python Software Foundation; All Rights Reserved. See LICENSES/PSF-2.0.txt.
#include "cpython/operations.h"
#include "py/names.h"

namespace alternator::cpython {

Ref import_name(PyThreadState* ts, Frame* frame, Borrowed name, Borrowed fromlist, Borrowed level) {
  Ref import = lookup_mapping(frame->f_builtins, names::__import__);
  if (!import) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ImportError, "__import__ not found");
    return {};
  }
  PyObject* locals = frame->f_locals != nullptr ? frame->f_locals : Py_None;
  if (import.get() == default_import(ts)) {
    const long import_level = PyLong_AsLong(level.get());
    if (import_level == -1 && PyErr_Occurred()) return {};
    return Ref::steal(PyImport_ImportModuleLevelObject(name.get(), frame->f_globals, locals, fromlist.get(),
                                                       static_cast<int>(import_level)));
  }
  PyObject* arguments[] = {name.get(), frame->f_globals, locals, fromlist.get(), level.get()};
  return Ref::steal(PyObject_Vectorcall(import.get(), arguments, 5, nullptr));
}

static void set_cannot_import(Borrowed module, Borrowed name, const Ref& package) {
  Ref path;
  if (PyModule_Check(module.get())) {
    path = Ref::steal(PyModule_GetFilenameObject(module.get()));
  } else {
    PyErr_Clear();
  }
  Ref shown = package ? package : Ref::steal(PyUnicode_FromString("<unknown module name>"));
  if (!shown) return;
  Ref message;
  if (!path || !PyUnicode_Check(path.get())) {
    PyErr_Clear();
    message =
        Ref::steal(PyUnicode_FromFormat("cannot import name %R from %R (unknown location)", name.get(), shown.get()));
    path.reset();
  } else {
    Ref spec = Ref::steal(PyObject_GetAttr(module.get(), names::__spec__));
    const char* format =
        spec_is_initializing(spec.get())
            ? "cannot import name %R from partially initialized module %R (most likely due to a circular import) (%S)"
            : "cannot import name %R from %R (%S)";
    message = Ref::steal(PyUnicode_FromFormat(format, name.get(), shown.get(), path.get()));
  }
  if (message) set_import_error(message, package, path, name);
}

Ref import_from(Borrowed module, Borrowed name) {
  PyObject* found = nullptr;
  if (lookup_attribute(module.get(), name.get(), &found) != 0) return Ref::steal(found);
  // A circular import: the submodule may be in sys.modules before it is an attribute of its package.
  Ref package = Ref::steal(PyObject_GetAttr(module.get(), names::__name__));
  if (package && !PyUnicode_Check(package.get())) package.reset();
  if (package) {
    Ref full_name = Ref::steal(PyUnicode_FromFormat("%U.%U", package.get(), name.get()));
    if (!full_name) return {};
    Ref submodule = Ref::steal(PyImport_GetModule(full_name.get()));
    if (submodule || PyErr_Occurred()) return submodule;
  }
  set_cannot_import(module, name, package);
  return {};
}

static void set_bad_star_name(Borrowed module, Borrowed name, bool from_dict) {
  Ref module_name = Ref::steal(PyObject_GetAttr(module.get(), names::__name__));
  if (!module_name) return;
  if (!PyUnicode_Check(module_name.get())) {
    PyErr_Format(PyExc_TypeError, "module __name__ must be a string, not %.100s", Py_TYPE(module_name.get())->tp_name);
  } else {
    PyErr_Format(PyExc_TypeError, "%s in %U.%s must be str, not %.100s", from_dict ? "Key" : "Item", module_name.get(),
                 from_dict ? "__dict__" : "__all__", Py_TYPE(name.get())->tp_name);
  }
}

int import_star(Borrowed locals, Borrowed module) {
  if (!locals) {
    PyErr_SetString(PyExc_SystemError, "no locals found during 'import *'");
    return -1;
  }
  PyObject* found = nullptr;
  if (lookup_attribute(module.get(), names::__all__, &found) < 0) return -1;
  Ref all = Ref::steal(found);
  const bool from_dict = !all;
  if (from_dict) {
    if (lookup_attribute(module.get(), names::__dict__, &found) < 0) return -1;
    Ref dict = Ref::steal(found);
    if (!dict) {
      PyErr_SetString(PyExc_ImportError, "from-import-* object has no __dict__ and no __all__");
      return -1;
    }
    all = Ref::steal(PyMapping_Keys(dict.get()));
    if (!all) return -1;
  }
  for (Py_ssize_t i = 0;; i++) {
    Ref name = Ref::steal(PySequence_GetItem(all.get(), i));
    if (!name) {
      if (!PyErr_ExceptionMatches(PyExc_IndexError)) return -1;
      PyErr_Clear();
      return 0;
    }
    if (!PyUnicode_Check(name.get())) {
      set_bad_star_name(module, name, from_dict);
      return -1;
    }
    if (from_dict && PyUnicode_GET_LENGTH(name.get()) > 0 && PyUnicode_READ_CHAR(name.get(), 0) == '_') continue;
    Ref value = Ref::steal(PyObject_GetAttr(module.get(), name.get()));
    if (!value || PyObject_SetItem(locals.get(), name.get(), value.get()) < 0) return -1;
  }
}

}  // namespace alternator::cpython
