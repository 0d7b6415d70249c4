// Arrays of numpy's that native code comes upon by itself.
#pragma once

#include "py/error.h"

namespace alternator::trace {

class Tracer;

// Before native code computes with what a container or an iterator holds: arrays from outside among it are used.
void check_arrays_within(Tracer& tracer, Borrowed value);

// The rows of an array whose numbers only a run knows, as a list. Null: it is none, or its elements are numbers.
Ref rows_of_symbolic(Tracer& tracer, Borrowed value);

}  // namespace alternator::trace
