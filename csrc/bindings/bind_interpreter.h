// The Python face of the interpreter room.
#pragma once

#include "cpython/version.h"

namespace alternator {

// Adds the room's functions and types to `module`. -1: an exception is set.
int bind_interpreter(PyObject* module);

}  // namespace alternator
