// Modules by name, whatever the program has made of __import__ and of the builtins of its functions.
#pragma once

#include "py/error.h"

namespace alternator {

// PyImport_ImportModule() asks the builtins of the function that is running for __import__, which may be another one,
// or none at all: those of a namedtuple's __new__ are empty.
inline Ref import_module(const char* name) {
  Ref text = checked(PyUnicode_FromString(name));
  Ref module = Ref::steal(PyImport_GetModule(text.get()));
  if (module) return module;
  if (PyErr_Occurred()) throw PyError();
  checked(PyImport_ImportModuleLevelObject(text.get(), nullptr, nullptr, nullptr, 0)).reset();
  return checked(PyImport_GetModule(text.get()));
}

}  // namespace alternator
