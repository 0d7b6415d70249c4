// Pre-existing iterators over tuples and ranges, which the program advances.
#pragma once

#include "lift/lifting/shadow.h"

#include <unordered_map>

namespace alternator::lift {

class Lifter;

class Iterators {
 public:
  explicit Iterators(Lifter& lifter) : lifter_(lifter) {}

  // The next value. Null without an error: it is exhausted.
  Ref next(Borrowed iterator);

  bool has_writes() const { return !advanced_.empty(); }
  void add_writes(std::vector<VariableWrite>& writes) const;

 private:
  struct Iterator {
    Source* source;
    Ref copy;
    Py_ssize_t asked = 0;
  };
  Iterator begin(Borrowed iterator);

  Lifter& lifter_;
  std::unordered_map<PyObject*, Iterator> iterators_;
  std::vector<PyObject*> advanced_;  // in order
};

}  // namespace alternator::lift
