// Inserts keys with the hashes that the trace computed. A __hash__ or __eq__ in Python has run there, under guards: a
// run does not call it again.
#pragma once

#include "replay/builder.h"

namespace alternator::replay {

// A placeholder for a key: the same hash, equal to itself only.
struct StandIn {
  PyObject_HEAD Py_hash_t hash;
  PyObject* key;  // borrowed
};
PyTypeObject* stand_in_type();
Ref make_stand_in(Borrowed key, Py_hash_t hash);

// The hashes of the keys of one container, as stored in the trace's.
class KnownHashes {
 public:
  void add(Builder& builder, Borrowed key, Py_hash_t hash);
  // Some hashes need Python code or completed objects; all of them are the same on every run.
  bool are_known() const { return has_code_ && !follow_addresses_; }
  // They have to be computed by a run, in the state that the call leaves.
  bool are_asked() const { return has_code_ && follow_addresses_; }
  Ref packed() const;  // bytes: a constant operand

 private:
  std::vector<Py_hash_t> hashes_;  // -1: native code computes it on every run
  bool has_code_ = false, follow_addresses_ = false;
};

// At run time: inserts new keys into a dict or OrderedDict. `items`: key, value, key, value, ...
void add_under_hashes(Borrowed dict, Borrowed packed, const std::vector<PyObject*>& items);
// Inserts elements into a set, or into a frozenset that is not visible yet.
void add_elements_under_hashes(Borrowed set, Borrowed packed, const std::vector<PyObject*>& elements, size_t table);

}  // namespace alternator::replay
