// Speculated checks: branches on tensor data that only raise are taken not to be taken, and every run verifies it.
#pragma once

#include "py/ref.h"

#include <optional>
#include <vector>

namespace alternator::trace {

class Tracer;

// A comparison of unbacked symbols, and the symbol of its result.
struct Comparison {
  Ref truth, left, right;
  int operation;
};

class SpeculatedChecks {
 public:
  explicit SpeculatedChecks(Tracer& tracer) : t(tracer) {}

  // The truth that the program goes on with; none: it may not be assumed here.
  std::optional<bool> assume_truth(Borrowed tensor);
  std::optional<bool> assume_comparison(Borrowed truth);
  bool expect_all(Borrowed condition);

  std::vector<Comparison> comparisons;  // of unbacked symbols

 private:
  bool may_speculate_here() const;
  void assume(Ref flag, bool wanted);

  Tracer& t;
};

}  // namespace alternator::trace
