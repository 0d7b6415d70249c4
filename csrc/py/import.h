// Imports modules by name, independent of the program's __import__ and of the builtins of its functions.
#pragma once

#include "py/error.h"

namespace alternator {

// PyImport_ImportModule() looks __import__ up in the builtins of the running function. That may be replaced, or
// missing: the builtins of a namedtuple's __new__ are empty.
inline Ref import_module(const char* name) {
  Ref text = checked(PyUnicode_FromString(name));
  Ref module = Ref::steal(PyImport_GetModule(text.get()));
  if (module) return module;
  if (PyErr_Occurred()) throw PyError();
  checked(PyImport_ImportModuleLevelObject(text.get(), nullptr, nullptr, nullptr, 0)).reset();
  return checked(PyImport_GetModule(text.get()));
}

}  // namespace alternator
