// The parts of a guard program.
#pragma once

#include "guards/pin.h"
#include "lift/sources/source_step.h"
#include "lift/sources/tensor_spec.h"

#include <memory>
#include <string>
#include <vector>

namespace alternator::guards {

// Where the walk starts: the called function and the slots of its frame. Borrowed.
struct Roots {
  PyObject* function = nullptr;
  PyObject* const* slots = nullptr;
};

inline constexpr uint32_t kNone = UINT32_MAX;

// A source that something depends on. Parents come before their children; a subtree is a range.
struct Node {
  lift::Step step;
  uint32_t parent = kNone;
  uint32_t end = 0;  // one past its subtree
  uint32_t first_check = 0, last_check = 0;
  uint32_t memo = kNone;        // if its parts are read one by one
  uint32_t absent = kNone;      // the check that it does not exist
  bool has_pinned_key = false;  // `key` tells whether step.key is still alive
  Pin key;
  const lift::Source* source = nullptr;
};

// The special methods of a class.
struct SpecialMethods {
  std::vector<std::pair<Ref, Pin>> attributes;
  // While the class has this version, nothing is compared again. Class versions are never reused.
  mutable uint32_t version = 0;
};

// One guard on one node.
struct Check {
  lift::GuardKind kind;
  uint32_t node = 0;
  Py_ssize_t number = 0;
  PyObject* object = nullptr;  // borrowed from `first`; compare through the pin if it may have died
  Pin first, second;
  std::shared_ptr<const lift::TensorSpec> tensor;
  std::vector<Pin> keys;  // kKeys
  std::unique_ptr<SpecialMethods> methods;
  std::string label;  // description of the expected value, once that has died
  uint32_t site = 0;

  template <class Visit>
  void each_object(Visit&& visit) {
    first.each_object(visit);
    second.each_object(visit);
    for (Pin& key : keys) key.each_object(visit);
    if (methods == nullptr) return;
    for (auto& [name, attribute] : methods->attributes) attribute.each_object(visit);
  }

  // `found` is what the node found. `memo` belongs to the node, and is not null if a key is looked up.
  bool holds(PyObject* found, lift::Access access, lift::Memo* memo) const;
};

// Two sources that find the same object, or two distinct ones.
struct Relation {
  bool same;
  uint32_t left, right;  // nodes
  uint32_t site;
};

}  // namespace alternator::guards
