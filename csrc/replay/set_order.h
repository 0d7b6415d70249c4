// Elements of containers in their own order, read without running user code.
#pragma once

#include "py/error.h"

#include <optional>
#include <utility>
#include <vector>

namespace alternator::replay {

std::vector<Ref> set_elements(Borrowed set);
std::vector<Ref> deque_items(Borrowed deque);
Ref deque_limit(Borrowed deque);  // None, or an int
// Of an OrderedDict, in its order (which is not that of the dict below it).
std::vector<std::pair<Ref, Ref>> ordered_items(Borrowed dict);

// The order in which a set iterates depends on how it was filled.
enum class SetFilling : uint8_t {
  kOneByOne,  // in the order of iteration
  kAtOnce,    // as a copy of another set: the table is sized for all of them
};
// The way to fill an empty set that gives the order of this one; none: no way is known. A set with elements whose hash
// is an address has no order to speak of.
std::optional<SetFilling> find_filling(Borrowed set);
// Fills an empty set (or a new frozenset).
void fill_set(Borrowed set, PyObject* const* elements, size_t count, SetFilling filling);

}  // namespace alternator::replay
