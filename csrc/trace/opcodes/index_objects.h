// Objects of the program's that stand for a number (`__index__`), and slices with such numbers.
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

// Torch takes such an object for a number only in an index or where a size is wanted, and asks it by itself.
void refuse_index_objects(PyObject* value);
// Nobody has looked into a slice from outside. Those in an index or an argument too.
void check_slices(Tracer& tracer, Borrowed value, int depth = 0);

}  // namespace alternator::trace
