// Keys under the hashes that the trace saw. Where a __hash__ or an __eq__ is Python code it has run there, under
// guards: a run asks it no more.
#pragma once

#include "replay/builder.h"

namespace alternator::replay {

// Stands for a key: the same hash, equal to itself only.
struct StandIn {
  PyObject_HEAD Py_hash_t hash;
  PyObject* key;  // borrowed
};
PyTypeObject* stand_in_type();
Ref make_stand_in(Borrowed key, Py_hash_t hash);

// The hashes of the keys of one container, as they stand in the trace's.
class KnownHashes {
 public:
  void add(Builder& builder, Borrowed key, Py_hash_t hash);
  // Some need more than native code and what is there when they are made; all of their hashes are the same on every
  // run.
  bool are_known() const { return has_code_ && !follow_addresses_; }
  // They have to be asked, when all that they may read is as the call leaves it.
  bool are_asked() const { return has_code_ && follow_addresses_; }
  Ref packed() const;  // bytes: a constant operand

 private:
  std::vector<Py_hash_t> hashes_;  // -1: native code tells it on every run
  bool has_code_ = false, follow_addresses_ = false;
};

// In a run: puts new keys into a dict or OrderedDict. `items`: key, value, key, value, ...
void add_under_hashes(Borrowed dict, Borrowed packed, const std::vector<PyObject*>& items);
// Elements into a set, or into a frozenset that nobody has seen yet.
void add_elements_under_hashes(Borrowed set, Borrowed packed, const std::vector<PyObject*>& elements, size_t table);

}  // namespace alternator::replay
