// What an exported module computed when it was made: whether it still does.
#pragma once

#include "py/error.h"

#include <vector>

namespace alternator::graph {

// FX counts no versions. A node is the same program as long as its op, target, arguments and place in the list are the
// same objects: FX replaces arguments, it does not write into them.
class FxSnapshot {
 public:
  FxSnapshot() = default;
  explicit FxSnapshot(Borrowed module);

  // Whether code generated from the module now would do what it would have done then. Every doubt is a no.
  bool holds(Borrowed module) const;

 private:
  static std::vector<Ref> parts_of(Borrowed module);
  std::vector<Ref> parts_;
};

}  // namespace alternator::graph
