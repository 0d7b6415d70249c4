// Detects whether an exported module was modified since its creation.
#pragma once

#include "py/error.h"

#include <vector>

namespace alternator::graph {

// FX has no version counter. A node is unchanged as long as its op, target, arguments and position in the list are the
// same objects: FX replaces arguments, it does not mutate them.
class FxSnapshot {
 public:
  FxSnapshot() = default;
  explicit FxSnapshot(Borrowed module);

  // Whether code generated from the module now would be equivalent to that of the snapshot. False if in doubt.
  bool holds(Borrowed module) const;

 private:
  static std::vector<Ref> parts_of(Borrowed module);
  std::vector<Ref> parts_;
};

}  // namespace alternator::graph
