// Values that may be another one in each call, or in each turn of a loop: see Lifter::unspecialized.
#pragma once

#include "lift/sources/plain.h"

namespace alternator::lift {

inline bool is_counting(Borrowed value) { return PyLong_CheckExact(value.get()) || PyFloat_CheckExact(value.get()); }

// A queue, a history, a table that is filled.
inline bool is_filled(Borrowed value) {
  return PyList_CheckExact(value.get()) || PyDict_CheckExact(value.get()) || PyAnySet_CheckExact(value.get()) ||
         value.type() == known_types().deque || value.type() == known_types().default_dict;
}

}  // namespace alternator::lift
