// Pre-existing data iterators (cpython/iterator_copies.h), which the program advances.
#pragma once

#include "lift/lifting/shadow.h"

#include <optional>
#include <unordered_map>

namespace alternator::lift {

class Lifter;

class Iterators {
 public:
  explicit Iterators(Lifter& lifter) : lifter_(lifter) {}

  // Whether next() may be called with it.
  bool is_preexisting(Borrowed iterator) const;

  struct Value {
    Ref value;  // the pre-existing object; null: the iterator has ended
    Source* source;
  };
  // Advances it, as the program sees it. Throws CannotLift where its parts cannot be read, or have been changed since
  // the trace began. Values are looked up in the iterator as it was then.
  Value next(Borrowed iterator);
  // At the end of the trace: guards that what was taken is there, read or not.
  void finish();

  bool has_writes() const { return !advanced_.empty(); }
  void add_writes(std::vector<VariableWrite>& writes) const;

 private:
  void check_unchanged(Borrowed iterator) const;

  struct Iterator {
    Source* source;
    Py_ssize_t asked = 0;  // calls of next()
    bool ended = false;
  };
  Lifter& lifter_;
  std::unordered_map<PyObject*, Iterator> iterators_;
  std::vector<PyObject*> advanced_;  // in order
};

}  // namespace alternator::lift
