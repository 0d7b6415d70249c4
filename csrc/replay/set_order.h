// Elements of containers in their own order, read without running user code.
#pragma once

#include "lift/lifting/shadow.h"

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace alternator::replay {

std::vector<Ref> set_elements(Borrowed set);
std::unordered_map<PyObject*, Py_hash_t> element_hashes(Borrowed set);
std::vector<Ref> deque_items(Borrowed deque);
Ref deque_limit(Borrowed deque);  // None, or an int
// Of an OrderedDict, in its order (which is not that of the underlying dict).
std::vector<std::pair<Ref, Ref>> ordered_items(Borrowed dict, std::vector<Py_hash_t>* hashes = nullptr);

// The iteration order of a set depends on how it was filled.
struct SetPlan {
  size_t table = 0;           // the size of its table from the start; 0: it grows with the elements
  std::vector<Ref> elements;  // in the order in which they are added
};
// How to fill an empty set so that it iterates as this one does; none: no order was found. A set with elements whose
// hash may be an address has no reproducible order.
std::optional<SetPlan> plan_filling(Borrowed set);
// The order of insertion after which a copy of `start`, with `removed` taken out and `added` inserted, iterates as
// `wanted`, preferably with the same dummy entries in its table; none: no order was found.
std::optional<std::vector<Ref>> plan_adding(Borrowed start, const std::vector<Ref>& removed,
                                            const std::vector<Ref>& added, Borrowed wanted);

// Dummy entries of other elements need not be reproduced: their positions depend on addresses, or on user-defined
// hashes.
bool are_plain(const std::vector<lift::SetStep>& steps);
// Whether these steps, applied to a copy of `start`, give `wanted` including the dummy entries of its table.
bool leads_to(Borrowed start, const std::vector<lift::SetStep>& steps, Borrowed wanted);

// Fills an empty set, or a new frozenset.
void fill_set(Borrowed set, PyObject* const* elements, size_t count, size_t table);

}  // namespace alternator::replay
