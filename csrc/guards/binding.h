// Bindings: what was proved for one object, as comparisons of addresses and versions.
//
// A binding belongs to one root of a program (a model, the function, the constants) and to one object that was found
// there. It is a list of operations, parents before children. Each proves that memory which the next ones read is still
// what it was when the binding was made, or checks something that may have changed without a version (a tensor, a list,
// a cell):
//
// - a dict with the same version holds the same objects: versions are never reused, so not even another dict at the
//   same address can have it;
// - a class with the same version has the same attributes;
// - an object with a live weak reference is the same object; so is one that is held strongly;
// - the parts of an immutable object that is the same are the same.
//
// An address alone proves nothing. What cannot be proved this way is walked as before. A binding keeps no user object
// alive: see pin.h.
#pragma once

#include "guards/guard_node.h"
#include "guards/tensor_watch.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace alternator::guards {

// A word of memory that must be unchanged: the type of an object, the pointer to its dict, a dict's version, the
// referent of a weak reference. Most of a binding is this, in one array that is read sequentially.
struct Word {
  const void* address;
  uintptr_t want;
};

enum class WordKind : uint8_t {
  kPointer,      // an address
  kDictVersion,  // of the node's dict
};

// What a word represents, to explain why it changed.
struct WordNote {
  uint32_t node;
  WordKind kind;
};

enum class OpKind : uint8_t {
  kWords,        // the words from index `node` up to index `want` are unchanged
  kTypeVersion,  // the version of the class `object` is `want`
  kListItem,     // the list `object` has `want` at the node's index
  kTupleItem,    // the tuple `object` has `want` at the node's index
  kDictItem,     // the dict `object` has `want` under the node's key
  kCheck,        // check number `want` holds for `object`
  kVisit,        // the memo of the node's container is reset
  kWalk,         // the node and its subtree are walked
};

struct Op {
  OpKind kind;
  uint32_t node;
  void* object;
  uintptr_t want;
};

struct Binding {
  uint64_t id = 0;  // never reused
  // The object at the root. A dict or list cannot be pinned: there, the operations prove that it is unchanged.
  const void* address = nullptr;
  Pin key;
  bool has_pinned_key = false;
  std::vector<Op> ops;
  std::vector<Word> words;
  std::vector<WordNote> notes;  // by word
  // Checked after all operations, which prove that the objects are the same: the sizes of dicts that must be empty, and
  // tensors.
  std::vector<const Py_ssize_t*> empty;
  TensorWatches tensors;
  std::vector<PyObject*> values;  // of the unit's needed nodes
  std::vector<uint32_t> fresh;    // positions of those that are found again each time
  std::vector<Pin> pins;
  std::vector<Ref> held;
  std::vector<PyObject*> found;  // by node, from the root's on
  std::vector<bool> is_stable;   // by node: `found` is proved by the operations
  // Dicts whose items are compared because they used to change, with their versions: if they become stable, they are
  // bound by version again.
  std::vector<std::pair<uint32_t, uint64_t>> watched;
  uint64_t hits = 0, review_at = 64;

  bool is_for(PyObject* object) const { return object == address && (!has_pinned_key || key.is(object)); }
  bool is_dead() const { return has_pinned_key && key.get() == nullptr; }

  template <class Visit>
  void each_object(Visit&& visit) {
    key.each_object(visit);
    for (Pin& pin : pins) pin.each_object(visit);
    for (Ref& object : held) visit(object);
  }
};

// A root with its subtree, or all constants together: bound or walked as a whole.
struct Unit {
  uint32_t begin = 0, end = 0;
  std::vector<uint32_t> needed;      // positions of its nodes among the program's needed ones
  bool has_key = false;              // false: the constants
  std::vector<const void*> seen;     // recently walked objects: the second time is worth a binding. Never dereferenced.
  size_t next_seen = 0;              // the next one to be replaced
  uint64_t resident = 0;             // the binding whose objects are in the program's `found_`
  uint32_t failures = 0, pause = 0;  // bindings that never held; checks to wait before the next one
  std::vector<std::unique_ptr<Binding>> bindings;  // most recently used first
};

// What bindings of several units imply together about the identity of objects. Verified once.
struct Combination {
  std::vector<uint64_t> ids;         // of the units' bindings; 0: walked
  std::vector<uintptr_t> addresses;  // of proved objects that are pairwise distinct, sorted
  std::vector<uint32_t> identities;  // nodes that are found again each time
  std::vector<uint32_t> relations;   // those that involve such nodes
};

}  // namespace alternator::guards
