// numpy arrays that native code reaches on its own: as arguments, and inside containers and iterators.
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

// To be called before native code computes with the contents of a container or an iterator: marks pre-existing arrays
// among them as used.
void check_arrays_within(Tracer& tracer, Borrowed value);

// To be called before native code receives arguments. True: there are arrays among them.
bool check_array_arguments(Borrowed callable, PyObject* const* arguments, size_t count);
// The same for a class that reads memory or warns. Classes that only store the array are allowed.
bool check_array_arguments(PyTypeObject* type, PyTypeObject* base, PyObject* const* arguments, size_t count);

}  // namespace alternator::trace
