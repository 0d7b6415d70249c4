// The hash tables of dicts: inserts keys without calling their __hash__ or __eq__. The reading side is in objects.h.
#pragma once

#include "py/ref.h"

namespace alternator::cpython {

// The hash with which next_ordered_key() found its last key.
Py_hash_t ordered_hash(void* position);

// Replaces every key of the type `stand_in` in a dict (or OrderedDict), in place, by the object that it stands for,
// which has the same hash.
void exchange_keys(PyObject* dict, PyTypeObject* stand_in, PyObject* (*stands_for)(PyObject*));

}  // namespace alternator::cpython
