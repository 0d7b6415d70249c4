// User objects with an `__index__`, and slices that hold such objects.
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

// Torch accepts such an object only in an index or as a size, and calls its `__index__` itself.
void refuse_index_objects(PyObject* value);
// The fields of a pre-existing slice have not been checked. Also those of slices in an index or an argument.
void check_slices(Tracer& tracer, Borrowed value, int depth = 0);

}  // namespace alternator::trace
