// Python bindings of expressions over sizes.
#pragma once

#include "py/ref.h"

namespace alternator {

// Adds the types Environment and Expression to `module`. -1: an exception is set.
int bind_shapes(PyObject* module);

}  // namespace alternator
