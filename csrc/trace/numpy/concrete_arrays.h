// numpy arrays that native code reaches on its own, inside containers and iterators.
#pragma once

#include "py/error.h"

namespace alternator::trace {

class Tracer;

// To be called before native code computes with the contents of a container or an iterator: marks pre-existing arrays
// among them as used.
void check_arrays_within(Tracer& tracer, Borrowed value);

// The rows of a symbolic array, as a list. Null: it is not one, or its elements are scalars.
Ref rows_of_symbolic(Tracer& tracer, Borrowed value);

}  // namespace alternator::trace
