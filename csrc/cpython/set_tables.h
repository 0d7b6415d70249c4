// The hash tables of sets and frozensets.
#pragma once

#include "py/ref.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace alternator::cpython {

// A hash of the table's layout: the slots of elements and of deleted entries, and the finger of pop(). Sets with equal
// elements in equal slots and this hash iterate alike, now and after any equal sequence of operations.
uint64_t set_layout(PyObject* set);
// Gives a new, empty set (or frozenset) a copy of another one's table. `replace`, if given, maps an element to its
// substitute: an object with the same hash. Allocates; false: no memory.
bool copy_set_table(PyObject* from, PyObject* to, const std::function<PyObject*(PyObject*)>& replace = {});

// As exchange_keys() of dict_tables.h does for a dict.
void exchange_elements(PyObject* set, PyTypeObject* stand_in, PyObject* (*stands_for)(PyObject*));

size_t set_table_size(PyObject* set);
// Gives an empty set (or frozenset) a table of that size. Allocates; false: no memory.
bool resize_empty_set(PyObject* set, size_t size);
// The elements (borrowed) in an order that, inserted into an empty table of the same size, puts each into its slot.
// None: there is no such order, since a deleted entry had displaced an element.
std::optional<std::vector<PyObject*>> set_filling_order(PyObject* set);

}  // namespace alternator::cpython
