// Calls of __reduce_ex__ and __setstate__ that nobody hears of.
#pragma once

#include "py/ref.h"

#include <cstddef>

namespace alternator::cpython {

// Calls a method of a builtin iterator. CPython 3.12 and 3.13 warn that itertools will lose its support for pickling;
// that is for those who pickle. The filters of `warnings` and the caller's __warningregistry__ stay as they are. Null:
// it raised.
Ref call_quietly(PyObject* callable, PyObject* const* arguments, size_t count);

}  // namespace alternator::cpython
