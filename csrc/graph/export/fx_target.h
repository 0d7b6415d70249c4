// The form of a recorded call in FX: a function, a method or an attribute.
#pragma once

#include "graph/record/program.h"

#include <string>
#include <unordered_map>

namespace alternator::graph {

struct Target {
  enum class Form : uint8_t {
    Function,   // call_function(target, args)
    Method,     // call_method(target, args): target is a str
    Swapped,    // call_function(target, (args[1], args[0])): a reflected operator over a scalar
    Attribute,  // call_function(getattr / setattr / delattr, (args[0], attribute, args[1:]...))
  };
  Form form;
  Ref target;
  Ref attribute;
  std::string name;  // the base of the node's name
};

// Memoizes its results: one instance for each export.
class Targets {
 public:
  const Target& of(const Program& program, const Node& node);

 private:
  struct Key {
    PyObject* callable;
    uint32_t shape;  // argument count and whether the second is a scalar
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const { return std::hash<PyObject*>()(key.callable) * 31 + key.shape; }
  };
  std::unordered_map<Key, Target, KeyHash> known_;
};

}  // namespace alternator::graph
