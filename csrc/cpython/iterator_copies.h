// What a builtin iterator will yield, found without advancing it.
//
// A *data iterator* yields what lists, tuples, ranges, strings, dicts and sets hold, or tuples of such: each step reads
// containers, and calls nothing else. Copying and advancing one runs no user code. The iterators that it consists of
// belong to it alone: zip(rows, rows) over one iterator is none.
#pragma once

#include "py/ref.h"

#include <functional>

namespace alternator::cpython {

// By its type alone: its parts may be other iterators.
bool may_be_data_iterator(PyTypeObject* type);

struct Ahead {
  bool known = false;  // it is a data iterator, and does not raise
  Ref value;           // null: it has ended by then
};
// The value that it yields after `count` others.
Ahead look_ahead(PyObject* iterator, Py_ssize_t count);

// The objects that it refers to, and its parts do, in the order of tp_traverse: its containers are among them.
void each_part_of_iterator(PyObject* iterator, const std::function<void(PyObject*)>& visit);

}  // namespace alternator::cpython
