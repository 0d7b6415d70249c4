// Python bindings of the interpreter.
#pragma once

#include "cpython/version.h"

namespace alternator {

// Adds the interpreter's functions and types to `module`. -1: an exception is set.
int bind_interpreter(PyObject* module);

}  // namespace alternator
