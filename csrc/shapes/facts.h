// What is known about symbols and expressions: intervals, congruences, values that are not 0, conditions that hold.
// Facts are only ever added. A fact that contradicts what is known is not taken.
#pragma once

#include "shapes/congruence.h"
#include "shapes/expression.h"
#include "shapes/interval.h"

#include <unordered_set>

namespace alternator::shapes {

struct Knowledge {
  Interval interval;
  Congruence congruence;
};

class Facts {
 public:
  explicit Facts(ExpressionTable& table) : table_(table) {}
  Facts(const Facts&) = delete;
  Facts& operator=(const Facts&) = delete;

  // About the value of an integer expression, wherever it is defined.
  Knowledge about(Expression node);
  Interval interval(Expression node) { return about(node).interval; }
  Congruence congruence(Expression node) { return about(node).congruence; }
  bool is_nonzero(Expression node);
  // Total and not 0: both sides of a fraction may be divided by it.
  bool is_cancellable(Expression node) { return node->total && is_nonzero(node); }
  bool holds(Expression condition) const { return true_.contains(condition->id); }

  // From here on, what follows for the operands is learned too.
  void learn_interval(Expression node, const Interval& interval);
  void learn_congruence(Expression node, const Congruence& congruence);
  void learn_nonzero(Expression node);
  void learn_condition(Expression condition);

  // Grows with every fact.
  uint32_t version() const { return version_; }
  void changed() { version_++; }

 private:
  struct Entry {
    Knowledge cached;
    uint32_t version = 0;  // of the facts that `cached` was computed from
    int32_t fact = -1;     // index in facts_
  };
  // A sum of several terms as factor * node + constant: node has a positive first factor and no common divisor.
  struct Primitive {
    Expression node = nullptr;
    int64_t factor = 1;
    int64_t constant = 0;
  };

  Entry& entry(Expression node);
  Knowledge compute(Expression node);
  Primitive primitive(Expression sum, bool create);
  Knowledge& fact_of(Expression node);
  void learn_operands(Expression node, const Interval& interval);
  void learn_terms(Expression sum, const Interval& interval);
  void learn_factors(Expression product, const Interval& interval);

  ExpressionTable& table_;
  uint32_t version_ = 1;
  std::vector<Entry> entries_;  // by the id of the node
  std::vector<Knowledge> facts_;
  bool knows_sums_ = false;
  std::unordered_set<uint32_t> nonzero_;
  std::unordered_set<uint32_t> true_;
};

}  // namespace alternator::shapes
