// Python bindings of dispatch; independent of the interpreter's internals.
#pragma once

#include "py/ref.h"

namespace alternator::dispatch {

// Adds compile, reset, counters and the type Compiled to `module`. -1: an exception is set.
int init_dispatch(PyObject* module);

}  // namespace alternator::dispatch
