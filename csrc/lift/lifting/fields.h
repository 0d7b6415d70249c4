// Fields of pre-existing objects outside of their instance dicts: __slots__, and what native types keep.
#pragma once

#include "lift/lifting/shadow.h"
#include "lift/lifting/variables.h"

#include <optional>
#include <unordered_map>

namespace alternator::lift {

class Lifter;

class Fields {
 public:
  explicit Fields(Lifter& lifter) : lifter_(lifter) {}

  Ref load(Borrowed instance, Borrowed name, Borrowed descriptor);  // null: empty
  void store(Borrowed instance, Borrowed name, Ref value);
  std::optional<Ref> written(Borrowed instance, Borrowed name);  // none: the program did not write it

  bool has_writes() const { return !written_.empty(); }
  void add_writes(std::vector<VariableWrite>& writes) const;

 private:
  Lifter& lifter_;
  std::unordered_map<VariableKey, Variable, VariableHash> fields_;
  std::vector<VariableKey> written_;  // in order
};

}  // namespace alternator::lift
