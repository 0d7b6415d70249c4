// Min and max of integers.
#include "shapes/expression_builder.h"

namespace alternator::shapes {

namespace {
// More operands than this are not compared with each other.
constexpr size_t kMaxCompared = 16;
}  // namespace

bool ExpressionBuilder::is_less_equal(Expression a, Expression b) {
  if ((facts_.interval(a) - facts_.interval(b)).high <= 0) return true;
  const Expression difference = subtract(a, b);
  return difference != nullptr && facts_.interval(difference).high <= 0;
}

bool ExpressionBuilder::is_less(Expression a, Expression b) {
  if ((facts_.interval(a) - facts_.interval(b)).high < 0) return true;
  const Expression difference = subtract(a, b);
  return difference != nullptr && facts_.interval(difference).high < 0;
}

Expression ExpressionBuilder::extreme(Kind kind, std::span<const Expression> operands) {
  TermList terms;
  for (Expression operand : operands) {
    if (operand == nullptr) return nullptr;
    if (operand->kind == kind) {
      for (const Term& term : operand->terms()) terms.push(term.node, 1);
    } else {
      terms.push(operand, 1);
    }
  }
  if (terms.empty()) return nullptr;
  terms.sort_unique();
  if (terms.size() <= kMaxCompared) {
    // What another operand is always beyond can go. Of two that are always equal, one stays: a dropped one is no
    // reason to drop others.
    for (size_t index = terms.size(); index-- > 0 && terms.size() > 1;) {
      const Expression candidate = terms[index].node;
      const bool needless =
          candidate->total && std::ranges::any_of(terms, [&](const Term& other) {
            return other.node != candidate &&
                   (kind == Kind::kMin ? is_less_equal(other.node, candidate) : is_less_equal(candidate, other.node));
          });
      if (!needless) continue;
      std::move(terms.begin() + index + 1, terms.end(), terms.begin() + index);
      terms.shrink(terms.size() - 1);
    }
  }
  if (terms.size() == 1) return terms[0].node;
  return table_.make(kind, 0, terms.span());
}

}  // namespace alternator::shapes
