// Calls of __reduce_ex__ and __setstate__ without their deprecation warnings.
#pragma once

#include "py/ref.h"

#include <cstddef>

namespace alternator::cpython {

// Calls a method of a builtin iterator. CPython 3.12 and 3.13 warn that itertools will drop pickling; the user, who
// does not pickle, must not see that. The filters of `warnings` and the caller's __warningregistry__ are unchanged.
// Null: it raised.
Ref call_quietly(PyObject* callable, PyObject* const* arguments, size_t count);

}  // namespace alternator::cpython
