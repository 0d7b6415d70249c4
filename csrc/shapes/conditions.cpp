// Comparisons of integers, and logic.
#include "shapes/expression_builder.h"

#include <numeric>

namespace alternator::shapes {

namespace {

// A comparison of a sum with 0.
struct Comparison {
  Kind kind;
  TermList& terms;
  int64_t& constant;

  bool is_total() const {
    return std::ranges::all_of(terms, [](const Term& term) { return term.node->total; });
  }
  bool holds(int64_t value) const {
    return kind == Kind::kEq ? value == 0 : kind == Kind::kNe ? value != 0 : value <= 0;
  }
};

enum class Reduced : uint8_t { kYes, kNever, kOverflow };

// Divides by what the factors have in common, and gives the first factor of an equality a positive sign. kNever: the
// two sides cannot be equal.
Reduced reduce(const Comparison& comparison) {
  auto& [kind, terms, constant] = comparison;
  uint64_t divisor = 0;
  bool negative = false;
  for (const Term& term : terms) {
    if (term.factor == kLowest) return Reduced::kOverflow;
    if (divisor == 0) negative = term.factor < 0;
    divisor = std::gcd(divisor, magnitude(term.factor));
  }
  if (constant == kLowest) return Reduced::kOverflow;
  if (divisor == 0) return Reduced::kYes;
  auto by = static_cast<int64_t>(divisor);
  if (kind != Kind::kLe) {
    if (constant % by != 0) return comparison.is_total() ? Reduced::kNever : Reduced::kYes;
    if (negative) by = -by;
  }
  for (Term& term : terms) term.factor /= by;
  // x + c <= 0 is x <= -c, and x is an integer.
  constant = kind == Kind::kLe ? static_cast<int64_t>(ceil_quotient(constant, by)) : constant / by;
  return Reduced::kYes;
}

}  // namespace

Expression ExpressionBuilder::compare(Kind kind, Expression a, Expression b, int64_t offset) {
  if (a == nullptr || b == nullptr) return nullptr;
  SumAccumulator difference(*this);
  difference.add(a, 1);
  difference.add(b, -1);
  difference.add_constant(offset, 1);
  if (difference.settle()) {
    const Comparison comparison{kind, difference.terms(), difference.constant()};
    if (comparison.terms.empty()) return boolean(comparison.holds(comparison.constant));
    const Reduced reduced = reduce(comparison);
    if (reduced == Reduced::kNever) return boolean(kind == Kind::kNe);
    if (reduced == Reduced::kYes) {
      // Terms with a negative factor go to the right, and so does the constant unless it would be alone on the left.
      TermList left;
      TermList right;
      for (const Term& term : comparison.terms) {
        if (term.factor < 0) {
          right.push(term.node, -term.factor);
        } else {
          left.push(term.node, term.factor);
        }
      }
      const bool alone = left.empty();
      const Expression sides[] = {
          SumAccumulator::make(*this, alone ? comparison.constant : 0, left.span()),
          SumAccumulator::make(*this, alone ? 0 : -comparison.constant, right.span()),
      };
      if (sides[0] != nullptr && sides[1] != nullptr) {
        const Term operands[] = {{sides[0], 1}, {sides[1], 1}};
        return table_.make(kind, 0, operands);
      }
    }
  }
  // The difference overflows: the two sides stay as they are.
  if (offset != 0) return nullptr;
  const Term operands[] = {{a, 1}, {b, 1}};
  return table_.make(kind, 0, operands);
}

Expression ExpressionBuilder::less(Expression a, Expression b) {
  if (a == nullptr || b == nullptr) return nullptr;
  if (const Expression condition = compare(Kind::kLe, a, b, 1)) return condition;
  const Term operands[] = {{b, 1}, {a, 1}};
  const Expression opposite = table_.make(Kind::kLe, 0, operands);
  if (opposite == nullptr) return nullptr;
  const Term operand[] = {{opposite, 1}};
  return table_.make(Kind::kNot, 0, operand);
}

Expression ExpressionBuilder::negation(Expression condition) {
  if (condition == nullptr) return nullptr;
  switch (condition->kind) {
    case Kind::kBoolean:
      return boolean(condition->value == 0);
    case Kind::kNot:
      return condition->operand(0);
    case Kind::kEq:
    case Kind::kNe:
      return table_.make(condition->kind == Kind::kEq ? Kind::kNe : Kind::kEq, 0, condition->terms());
    case Kind::kLe:
      return less(condition->operand(1), condition->operand(0));
    case Kind::kFloatEq:
    case Kind::kFloatNe:
      return table_.make(condition->kind == Kind::kFloatEq ? Kind::kFloatNe : Kind::kFloatEq, 0, condition->terms());
    case Kind::kAnd:
    case Kind::kOr: {
      std::vector<Expression> opposites;
      for (const Term& term : condition->terms()) opposites.push_back(negation(term.node));
      return logic(condition->kind == Kind::kAnd ? Kind::kOr : Kind::kAnd, opposites);
    }
    default: {
      // `<` and `<=` of floats: NaN is on neither side.
      const Term operand[] = {{condition, 1}};
      return table_.make(Kind::kNot, 0, operand);
    }
  }
}

Expression ExpressionBuilder::logic(Kind kind, std::span<const Expression> operands) {
  const bool decisive = kind == Kind::kOr;
  TermList terms;
  bool missing = false;
  for (Expression operand : operands) {
    if (operand == nullptr) {
      missing = true;
    } else if (operand->is_boolean(decisive)) {
      return operand;
    } else if (operand->kind == kind) {
      for (const Term& term : operand->terms()) terms.push(term.node, 1);
    } else if (operand->kind != Kind::kBoolean) {
      terms.push(operand, 1);
    }
  }
  if (missing) return nullptr;
  if (terms.empty()) return boolean(!decisive);
  terms.sort_unique();
  if (terms.size() == 1) return terms[0].node;
  return table_.make(kind, 0, terms.span());
}

}  // namespace alternator::shapes
