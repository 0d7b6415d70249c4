// Pre-existing cells: free variables of the functions that the program calls.
#pragma once

#include "lift/lifting/shadow.h"
#include "lift/lifting/variables.h"

#include <unordered_map>

namespace alternator::lift {

class Lifter;

class Cells {
 public:
  explicit Cells(Lifter& lifter) : lifter_(lifter) {}

  // A pre-existing cell, found at `source`.
  Ref use(Borrowed cell, Source* source);
  // The same for a cell that the program handles as an object.
  Ref lift(Borrowed cell, Source* source);
  // A function's closure cells, before its frame takes them over.
  void use_closure(Borrowed function);
  bool is_preexisting(Borrowed cell) const { return cells_.count(cell.get()) != 0; }
  bool is_written(Borrowed cell) const { return cells_.at(cell.get()).variable.written; }
  Ref load(Borrowed cell);  // a pre-existing one; null: empty
  void store(Borrowed cell, Ref value);

  bool has_writes() const { return !written_.empty(); }
  void add_writes(std::vector<VariableWrite>& writes) const;

 private:
  struct Cell {
    Source* source;
    bool read = false;
    Variable variable;
  };

  Lifter& lifter_;
  std::unordered_map<PyObject*, Cell> cells_;
  std::vector<PyObject*> written_;  // in order
};

}  // namespace alternator::lift
