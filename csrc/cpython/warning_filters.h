// What is on record about warnings that were shown.
#pragma once

#include "py/ref.h"

#include <vector>

namespace alternator::cpython {

// Each change of warnings.filters, also one that is taken back, makes every module forget which of its lines have
// warned. For code of ours that imports modules (which may add filters for classes of their own) or compiles: where the
// filters that were there still are at its end, nothing is forgotten.
class KeepsShownWarnings {
 public:
  KeepsShownWarnings();
  ~KeepsShownWarnings();
  KeepsShownWarnings(const KeepsShownWarnings&) = delete;
  KeepsShownWarnings& operator=(const KeepsShownWarnings&) = delete;

 private:
  long version_;
  Ref filters_;  // the list
  std::vector<Ref> items_;
};

}  // namespace alternator::cpython
