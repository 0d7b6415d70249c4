// A number of a subclass becomes a plain one, in place.
#pragma once

#include "py/ref.h"

namespace alternator::cpython {

// `number` is of a static subclass of int or float without fields of its own, is referred to only where that is allowed
// to show, and was never hashed. From now on it is an int or a float that equals `value`, which is a plain one and, for
// an int, has no more digits than `number`.
void rewrite_number(PyObject* number, PyObject* value);

}  // namespace alternator::cpython
