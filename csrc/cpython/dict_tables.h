// The hash tables below dicts, where keys are put in without asking them. What reads them is in objects.h.
#pragma once

#include "py/ref.h"

namespace alternator::cpython {

// The hash under which next_ordered_key() found its last key.
Py_hash_t ordered_hash(void* position);

// Gives the place of every key of the type `stand_in` in a dict (or OrderedDict) to what it stands for, which has the
// same hash.
void exchange_keys(PyObject* dict, PyTypeObject* stand_in, PyObject* (*stands_for)(PyObject*));

}  // namespace alternator::cpython
