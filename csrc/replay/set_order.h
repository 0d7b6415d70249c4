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
// Of an OrderedDict, in its order (which is not that of the dict below it).
std::vector<std::pair<Ref, Ref>> ordered_items(Borrowed dict, std::vector<Py_hash_t>* hashes = nullptr);

// The order in which a set iterates depends on how it was filled.
struct SetPlan {
  size_t table = 0;           // the size of its table from the start; 0: it grows with the elements
  std::vector<Ref> elements;  // in the order in which they are added
};
// How to fill an empty set so that it iterates as this one does; none: no way was found. A set with elements whose hash
// may be an address has no order to speak of.
std::optional<SetPlan> plan_filling(Borrowed set);
// A copy of `start`, once `removed` are taken out and `added` put in, iterates as `wanted`: the order of adding that
// does it, best with the same gaps in the table too; none: no way was found.
std::optional<std::vector<Ref>> plan_adding(Borrowed start, const std::vector<Ref>& removed,
                                            const std::vector<Ref>& added, Borrowed wanted);

// Where others came and went, the gaps that they left are nothing to reproduce: their places follow addresses, or
// hashes of the program's own.
bool are_plain(const std::vector<lift::SetStep>& steps);
// Whether these steps, done to a copy of `start`, give `wanted` with all that its table remembers.
bool leads_to(Borrowed start, const std::vector<lift::SetStep>& steps, Borrowed wanted);

// Fills an empty set, or a new frozenset.
void fill_set(Borrowed set, PyObject* const* elements, size_t count, size_t table);

}  // namespace alternator::replay
