// Sets and maps by address, for lookups at every instruction: no division, one cache line. Unlike those of the standard
// library they move their elements when they grow.
#pragma once

#include <c10/util/flat_hash_map.h>

namespace alternator::lift {

template <class Object>
using PointerSet = ska::flat_hash_set<Object*>;
template <class Object, class Value>
using PointerMap = ska::flat_hash_map<Object*, Value>;

}  // namespace alternator::lift
