// Objects whose finalization is observable: those with a `__del__`, with a weak reference that has a callback, or
// suspended generators with a `finally` to run.
#pragma once

#include "py/ref.h"

#include <functional>

namespace alternator::lift {

// Whether the finalization of the object, or of objects within two steps of it, is observable.
bool is_observably_finalized(PyObject* object);
// The same for the object alone.
bool is_observably_finalized_itself(PyObject* object);
// Whether a weak reference to it has a callback that does more than clean up a cache.
bool is_watched(PyObject* object);

// The same when a variable drops its reference to `object`, searching as deep as objects have no other owner. With
// `is_shared`, which decides that for an object, reference counts are not used.
bool is_finalization_observable(PyObject* object, const std::function<bool(PyObject*)>& is_shared = nullptr);

}  // namespace alternator::lift
