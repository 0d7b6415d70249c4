// Objects whose end somebody would notice: one with a `__del__`, one that a weak reference with a callback watches, a
// generator that has a `finally` to run.
#pragma once

#include "py/ref.h"

#include <functional>

namespace alternator::lift {

// Whether one of them is in what an object holds, as far as two steps down, or is the object itself.
bool is_observably_finalized(PyObject* object);
// Only of the object itself.
bool is_observably_finalized_itself(PyObject* object);
// By a weak reference with a callback that does more than to forget it.
bool is_watched(PyObject* object);

// A place lets go of `object`: the same, and as deep as the object and what is in it are held by nobody else. With
// `is_shared`, which says so of an object by itself, references are not counted.
bool is_finalization_observable(PyObject* object, const std::function<bool(PyObject*)>& is_shared = nullptr);

}  // namespace alternator::lift
