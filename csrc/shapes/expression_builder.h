// Builds expressions in a canonical form: equal polynomials are one node, constants are folded, and what the facts
// decide is simplified.
//
// Every function takes null for an operand and then returns null. It also returns null where a constant or a hint
// overflows, or where the expression grows too large: the caller then settles on the value.
//
// A simplification never changes a value, and drops a part that may be undefined only where the facts rule that out.
#pragma once

#include "shapes/facts.h"
#include "shapes/term_list.h"

#include <array>

namespace alternator::shapes {

class SumAccumulator;

class ExpressionBuilder {
 public:
  ExpressionBuilder() : facts_(table_) {}

  Expression integer(int64_t value) { return table_.make(Kind::kInteger, value, {}); }
  Expression boolean(bool value) { return table_.make(Kind::kBoolean, static_cast<int64_t>(value), {}); }
  // By its bits: 0.0 and -0.0 are two constants.
  Expression real(double value) { return table_.make(Kind::kFloat, std::bit_cast<int64_t>(value), {}); }

  // Integers (polynomials.cpp, divisions.cpp, extremes.cpp).
  Expression add(Expression a, Expression b);
  Expression subtract(Expression a, Expression b);
  Expression negate(Expression a) { return scale(a, -1); }
  Expression scale(Expression a, int64_t factor);
  Expression multiply(Expression a, Expression b);
  Expression power(Expression a, int64_t exponent);
  Expression floor_divide(Expression a, Expression b);
  Expression modulo(Expression a, Expression b);
  Expression minimum(std::span<const Expression> operands) { return extreme(Kind::kMin, operands); }
  Expression maximum(std::span<const Expression> operands) { return extreme(Kind::kMax, operands); }
  Expression minimum(Expression a, Expression b) { return minimum(std::array{a, b}); }
  Expression maximum(Expression a, Expression b) { return maximum(std::array{a, b}); }
  Expression absolute(Expression a) { return maximum(a, negate(a)); }

  // Comparisons of integers, and logic (conditions.cpp).
  Expression equal(Expression a, Expression b) { return compare(Kind::kEq, a, b, 0); }
  Expression not_equal(Expression a, Expression b) { return compare(Kind::kNe, a, b, 0); }
  Expression less_equal(Expression a, Expression b) { return compare(Kind::kLe, a, b, 0); }
  Expression less(Expression a, Expression b);
  Expression greater_equal(Expression a, Expression b) { return less_equal(b, a); }
  Expression greater(Expression a, Expression b) { return less(b, a); }
  Expression all_of(std::span<const Expression> operands) { return logic(Kind::kAnd, operands); }
  Expression any_of(std::span<const Expression> operands) { return logic(Kind::kOr, operands); }
  Expression all_of(Expression a, Expression b) { return all_of(std::array{a, b}); }
  Expression any_of(Expression a, Expression b) { return any_of(std::array{a, b}); }
  Expression negation(Expression condition);

  // Floats and conversions: `kind` is one of those that take one or two operands. Constants are folded, and nothing
  // else: any other rule would round differently. (conversions.cpp)
  Expression convert(Kind kind, Expression operand);
  Expression combine(Kind kind, Expression a, Expression b);

  // What such a node would be of other operands: by its kind.
  Expression rebuild(Expression node, std::span<const Expression> operands);

  Facts& facts() { return facts_; }
  const ExpressionTable& table() const { return table_; }

 protected:
  Expression divide_terms(Expression a, int64_t divisor, Expression monomial);

  ExpressionTable table_;
  Facts facts_;

 private:
  friend class SumAccumulator;
  struct Fraction;

  Expression monomial(Expression a, Expression b);
  Expression monomial_without(Expression node, Expression divisor);
  Expression divide_by_constant(Expression a, int64_t divisor);
  Expression modulo_constant(Expression a, int64_t divisor);
  Expression polynomial_quotient(Expression a, Expression b);
  bool split_multiples(Expression a, Expression b, SumAccumulator& quotient, SumAccumulator& rest);
  bool cancel(Fraction& fraction);
  bool is_less(Expression a, Expression b);
  bool is_less_equal(Expression a, Expression b);
  Expression extreme(Kind kind, std::span<const Expression> operands);
  Expression compare(Kind kind, Expression a, Expression b, int64_t offset);
  Expression logic(Kind kind, std::span<const Expression> operands);
};

// Collects a sum, and puts it into the canonical form.
class SumAccumulator {
 public:
  explicit SumAccumulator(ExpressionBuilder& builder) : builder_(builder) {}

  // Adds node * factor; null makes the sum null.
  void add(Expression node, int64_t factor);
  void add_constant(int64_t value, int64_t factor);
  // Sorts and merges; drops terms with the factor 0 unless they may be undefined. False: an overflow.
  bool settle();
  Expression finish();

  TermList& terms() { return terms_; }
  int64_t& constant() { return constant_; }
  static Expression make(ExpressionBuilder& builder, int64_t constant, std::span<const Term> terms);

 private:
  void merge();
  bool simplify_quotients();

  ExpressionBuilder& builder_;
  TermList terms_;
  int64_t constant_ = 0;
  bool failed_ = false;
};

}  // namespace alternator::shapes
