// The hash tables below sets and frozensets.
#pragma once

#include "py/ref.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace alternator::cpython {

// A number for where the elements stand in the set's table, where deleted ones stood and where pop() goes on: sets with
// equal elements in equal places and this number iterate alike, and go on doing so whatever is done to them.
uint64_t set_layout(PyObject* set);
// Gives a new, empty set (or frozenset) the table of another one. `replace`, if it is there, gives what stands for an
// element: an object with the same hash. Allocates; false: no memory.
bool copy_set_table(PyObject* from, PyObject* to, const std::function<PyObject*(PyObject*)>& replace = {});

// As exchange_keys() of dict_tables.h does for a dict.
void exchange_elements(PyObject* set, PyTypeObject* stand_in, PyObject* (*stands_for)(PyObject*));

size_t set_table_size(PyObject* set);
// Gives an empty set (or frozenset) a table of that size. Allocates; false: no memory.
bool resize_empty_set(PyObject* set, size_t size);
// The elements (borrowed) in an order that, added to an empty table of the same size, puts each where it stands. None:
// a deleted element once stood in another one's way.
std::optional<std::vector<PyObject*>> set_filling_order(PyObject* set);

}  // namespace alternator::cpython
