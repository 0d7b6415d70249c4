// A pre-existing variable outside of containers, as the program sees it: a cell, a __slots__ field, a class attribute.
#pragma once

#include "py/ref.h"

#include <functional>

namespace alternator::lift {

struct Variable {
  Ref value;             // lifted; null: empty or deleted
  bool written = false;  // by the program
};

// A variable with a name.
struct VariableKey {
  PyObject* owner;  // the instance, the class
  PyObject* name;   // interned
  bool operator==(const VariableKey&) const = default;
};
struct VariableHash {
  size_t operator()(const VariableKey& key) const {
    return std::hash<void*>()(key.owner) ^ (std::hash<void*>()(key.name) * 31);
  }
};

}  // namespace alternator::lift
