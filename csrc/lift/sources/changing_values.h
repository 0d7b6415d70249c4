// Values of variables that may differ from call to call: guards on them fail first.
#pragma once

#include "cpython/iterator_copies.h"
#include "lift/sources/known_types.h"

namespace alternator::lift {

// Values that may differ from call to call, or from one loop iteration to the next.
inline bool is_counting(Borrowed value) { return PyLong_CheckExact(value.get()) || PyFloat_CheckExact(value.get()); }

// A queue, a history, a table that grows; the position of an iterator.
inline bool is_filled(Borrowed value) {
  return PyList_CheckExact(value.get()) || PyDict_CheckExact(value.get()) || PyAnySet_CheckExact(value.get()) ||
         value.type() == known_types().deque || value.type() == known_types().default_dict ||
         cpython::may_be_data_iterator(value.type());
}

}  // namespace alternator::lift
