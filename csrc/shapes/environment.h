// The symbols of a trace, what was assumed about them, and what follows from that.
#pragma once

#include "shapes/expression_builder.h"

namespace alternator::shapes {

// A condition under which the trace is valid.
struct Guard {
  Expression condition;
  uint32_t tag;  // the caller's: which line of user code asked
};

enum class Assumed : uint8_t {
  kKnown,          // it follows from what is known: no guard
  kRecorded,       // a new guard
  kContradiction,  // it is false of the hints, or of all values that are left: nothing is recorded
};

class ShapeEnvironment : public ExpressionBuilder {
 public:
  // A symbol, whose value in a call is in the register of its number. `given`: what holds in every call without a guard
  // (a size is not negative). A hint lies in it; a symbol without one is unbacked.
  Expression add_symbol(std::optional<int64_t> hint, const Interval& given = {});
  Expression add_float_symbol(std::optional<double> hint);
  size_t symbol_count() const { return symbols_.size(); }
  Expression symbol(size_t number) const { return symbols_[number]; }

  // The expression under all equalities and other facts: after `s0 == s1`, s1 + 1 becomes s0 + 1.
  Expression simplify(Expression node);

  // Whether the condition holds for all values that the facts allow, or for none. A condition that may be undefined is
  // not decided.
  std::optional<bool> decide(Expression condition);

  // Takes a condition for true: records a guard, unless it is known, and learns from it.
  Assumed assume(Expression condition, uint32_t tag = 0);

  // What a call must satisfy besides the given intervals. Each guard is simplified by those before it only.
  const std::vector<Guard>& guards() const { return guards_; }

 private:
  struct Simplified {
    uint32_t version = 0;
    Expression node = nullptr;
  };

  Expression simplify_now(Expression node);
  Expression difference(Expression comparison) { return subtract(comparison->operand(0), comparison->operand(1)); }
  std::optional<bool> decide_comparison(Expression comparison);
  Interval difference_interval(Expression comparison);
  void learn(Expression condition);
  void learn_equality(Expression comparison);
  void learn_float(Expression comparison);
  void solve(Expression sum);
  bool is_root(Expression node, Expression except) const;

  std::vector<Expression> symbols_;
  std::vector<Expression> replacements_;  // by symbol; null: it stands for itself
  std::vector<Simplified> simplified_;    // by the id of the node
  std::vector<Guard> guards_;
};

}  // namespace alternator::shapes
