// TODO
#pragma once
#include <optional>
#include <vector>

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

struct Comparison {
  Ref truth, left, right;
  int operation;
};
class SpeculatedChecks {
 public:
  explicit SpeculatedChecks(Tracer& tracer) : t(tracer) {}
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
