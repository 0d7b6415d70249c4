// Quotients and remainders of integers, rounded down as Python's.
#include "shapes/expression_builder.h"

#include <numeric>

namespace alternator::shapes {

namespace {

constexpr int kMaxDivisionSteps = 16;

// 0 if there is none. Ignores factors that are 0.
uint64_t common_divisor(std::span<const Term> terms) {
  uint64_t divisor = 0;
  for (const Term& term : terms) divisor = std::gcd(divisor, magnitude(term.factor));
  return divisor;
}

bool has_zero_factor(std::span<const Term> terms) {
  return std::ranges::any_of(terms, [](const Term& term) { return term.factor == 0; });
}

// Of the first term that counts.
bool leads_negative(Expression node) {
  const LinearView view(node);
  for (const Term& term : view.terms()) {
    if (term.factor != 0) return term.factor < 0;
  }
  return false;
}

// The term of the highest degree; of several, the last.
Term leading_term(Expression node) {
  const LinearView view(node);
  Term best{nullptr, 0};
  int64_t best_degree = -1;
  for (const Term& term : view.terms()) {
    const FactorView factors(term.node);
    int64_t degree = 0;
    for (const Term& factor : factors.factors()) degree += factor.factor;
    if (term.factor != 0 && degree >= best_degree) {
      best = term;
      best_degree = degree;
    }
  }
  return best;
}

bool is_by_constant(const Node& node, Kind kind) {
  return node.kind == kind && node.operand(1)->kind == Kind::kInteger && node.operand(1)->value > 0;
}

}  // namespace

// A dividend and a divisor that is not a constant.
struct ExpressionBuilder::Fraction {
  Expression dividend;
  Expression divisor;
  Expression cancelled;  // both were divided by it
};

// ------------------------------------------------------------------------------------------------- division of
// monomials

// The product without the factors of `divisor`; null if it does not have them.
Expression ExpressionBuilder::monomial_without(Expression node, Expression divisor) {
  const FactorView view(node);
  const FactorView removed(divisor);
  TermList left;
  size_t found = 0;
  for (const Term& factor : view.factors()) {
    const int64_t exponent = removed.exponent_of(factor.node);
    found += static_cast<size_t>(exponent > 0);
    if (exponent > factor.factor) return nullptr;
    if (exponent < factor.factor) left.push(factor.node, factor.factor - exponent);
  }
  if (found < removed.factors().size()) return nullptr;
  if (left.empty()) return integer(1);
  if (left.size() == 1 && left[0].factor == 1) return left[0].node;
  return table_.make(Kind::kProduct, 0, left.span());
}

// a = quotient * b + rest, by the terms of `a` that are multiples of `b`, which has one term. False if there are none.
bool ExpressionBuilder::split_multiples(Expression a, Expression b, SumAccumulator& quotient, SumAccumulator& rest) {
  const LinearView divisor(b);
  if (divisor.constant() != 0 || divisor.terms().size() != 1) return false;
  const Term by = divisor.terms()[0];
  const LinearView view(a);
  bool found = false;
  for (const Term& term : view.terms()) {
    Expression left = nullptr;
    if (term.factor != 0 && by.factor > 0 && term.factor % by.factor == 0) left = monomial_without(term.node, by.node);
    if (left != nullptr) {
      quotient.add(left, term.factor / by.factor);
      found = true;
    } else {
      rest.add(term.node, term.factor);
    }
  }
  rest.add_constant(view.constant(), 1);
  return found;
}

// The polynomial q with a = q * b, if there is one that is easy to find.
Expression ExpressionBuilder::polynomial_quotient(Expression a, Expression b) {
  const Term by = leading_term(b);
  if (by.node == nullptr || by.factor == kLowest) return nullptr;
  Expression quotient = integer(0);
  for (int step = 0; step < kMaxDivisionSteps && a != nullptr; step++) {
    if (a->is_integer(0)) return quotient;
    const LinearView view(a);
    Expression multiple = nullptr;
    for (const Term& term : view.terms()) {
      if (term.factor == kLowest || term.factor == 0 || term.factor % by.factor != 0) continue;
      multiple = scale(monomial_without(term.node, by.node), term.factor / by.factor);
      if (multiple != nullptr) break;
    }
    if (multiple == nullptr) return nullptr;
    quotient = add(quotient, multiple);
    a = subtract(a, multiply(multiple, b));
  }
  return nullptr;
}

// a // (divisor * monomial), where the terms, but for the constant, are multiples of that. Monomial: null is 1.
Expression ExpressionBuilder::divide_terms(Expression a, int64_t divisor, Expression monomial) {
  const LinearView view(a);
  SumAccumulator sum(*this);
  for (const Term& term : view.terms()) {
    const Expression left = monomial == nullptr ? term.node : monomial_without(term.node, monomial);
    sum.add(left, term.factor / divisor);
  }
  sum.add_constant(static_cast<int64_t>(floor_quotient(view.constant(), divisor)), 1);
  return sum.finish();
}

// Divides both sides by what all of their terms have in common. False if that is nothing.
bool ExpressionBuilder::cancel(Fraction& fraction) {
  const LinearView above(fraction.dividend);
  const LinearView below(fraction.divisor);
  uint64_t divisor = std::gcd(common_divisor(above.terms()), common_divisor(below.terms()));
  divisor = std::gcd(divisor, std::gcd(magnitude(above.constant()), magnitude(below.constant())));
  if (divisor == 0 || divisor > static_cast<uint64_t>(kHighest)) divisor = 1;
  Expression common = nullptr;
  const bool monomials = above.constant() == 0 && below.constant() == 0 && !above.terms().empty() &&
                         !has_zero_factor(above.terms()) && !has_zero_factor(below.terms());
  if (monomials) {
    const FactorView first(below.terms()[0].node);
    for (const Term& factor : first.factors()) {
      int64_t exponent = factor.factor;
      for (const std::span<const Term> terms : {above.terms(), below.terms()}) {
        for (const Term& term : terms) exponent = std::min(exponent, FactorView(term.node).exponent_of(factor.node));
      }
      if (exponent == 0 || !facts_.is_cancellable(factor.node)) continue;
      for (; exponent > 0; exponent--) common = common == nullptr ? factor.node : monomial(common, factor.node);
      if (common == nullptr) return false;
    }
  }
  if (divisor == 1 && common == nullptr) return false;
  const auto by = static_cast<int64_t>(divisor);
  const Expression dividend = divide_terms(fraction.dividend, by, common);
  const Expression rest = divide_terms(fraction.divisor, by, common);
  const Expression cancelled = common == nullptr ? integer(by) : scale(common, by);
  if (dividend == nullptr || rest == nullptr || cancelled == nullptr) return false;
  fraction = {dividend, rest, cancelled};
  return true;
}

// -------------------------------------------------------------------------------------------------------------
// quotients

Expression ExpressionBuilder::divide_by_constant(Expression a, int64_t divisor) {
  if (divisor == 1) return a;
  const LinearView view(a);
  // Multiples of the divisor come out.
  SumAccumulator quotient(*this);
  SumAccumulator rest(*this);
  for (const Term& term : view.terms()) {
    const bool multiple = term.factor % divisor == 0;
    (multiple ? quotient : rest).add(term.node, multiple ? term.factor / divisor : term.factor);
  }
  quotient.add_constant(static_cast<int64_t>(floor_quotient(view.constant(), divisor)), 1);
  rest.add_constant(residue(view.constant(), divisor), 1);
  Expression left = rest.finish();
  if (left == nullptr) return nullptr;
  if (left->kind == Kind::kInteger) {
    quotient.add_constant(static_cast<int64_t>(floor_quotient(left->value, divisor)), 1);
    return quotient.finish();
  }
  // (g*x + c) // (g*d) is (x + c // g) // d.
  const LinearView terms(left);
  const auto common = static_cast<int64_t>(std::gcd(common_divisor(terms.terms()), static_cast<uint64_t>(divisor)));
  if (common > 1) {
    left = divide_terms(left, common, nullptr);
    quotient.add(left == nullptr ? nullptr : divide_by_constant(left, divisor / common), 1);
    return quotient.finish();
  }
  // (x // m + c) // d is (x + c*m) // (m*d).
  if (terms.terms().size() == 1 && terms.terms()[0].factor == 1 &&
      is_by_constant(*terms.terms()[0].node, Kind::kFloorDiv)) {
    const Expression inner = terms.terms()[0].node;
    const int64_t inner_divisor = inner->operand(1)->value;
    int64_t product = 0;
    if (checked_multiply(inner_divisor, divisor, &product)) {
      const Expression dividend = add(inner->operand(0), scale(integer(terms.constant()), inner_divisor));
      if (dividend != nullptr) {
        quotient.add(divide_by_constant(dividend, product), 1);
        return quotient.finish();
      }
    }
  }
  const Interval interval = shapes::floor_divide(facts_.interval(left), Interval::of(divisor));
  if (left->total && interval.is_single()) {
    quotient.add_constant(interval.low, 1);
  } else {
    const Term operands[] = {{left, 1}, {integer(divisor), 1}};
    quotient.add(table_.make(Kind::kFloorDiv, 0, operands), 1);
  }
  return quotient.finish();
}

Expression ExpressionBuilder::floor_divide(Expression a, Expression b) {
  if (a == nullptr || b == nullptr) return nullptr;
  if (b->kind == Kind::kInteger) {
    if (a->kind == Kind::kInteger) {
      int64_t quotient = 0;
      return checked_floor_divide(a->value, b->value, &quotient) ? integer(quotient) : nullptr;
    }
    if (b->value == 0 || b->value == kLowest) return nullptr;
    return b->value > 0 ? divide_by_constant(a, b->value) : floor_divide(negate(a), integer(-b->value));
  }
  if (leads_negative(b)) return floor_divide(negate(a), negate(b));
  if (facts_.is_cancellable(b)) {
    if (a->is_integer(0)) return a;
    SumAccumulator quotient(*this);
    SumAccumulator rest(*this);
    if (split_multiples(a, b, quotient, rest)) {
      quotient.add(floor_divide(rest.finish(), b), 1);
      return quotient.finish();
    }
    if (const Expression exact = polynomial_quotient(a, b)) return exact;
  }
  Fraction fraction{a, b, nullptr};
  if (cancel(fraction)) return floor_divide(fraction.dividend, fraction.divisor);
  const Interval interval = shapes::floor_divide(facts_.interval(a), facts_.interval(b));
  const bool total = facts_.is_nonzero(b);
  if (a->total && b->total && total && interval.is_single()) return integer(interval.low);
  const Term operands[] = {{a, 1}, {b, 1}};
  return table_.make(Kind::kFloorDiv, 0, operands, total);
}

// ------------------------------------------------------------------------------------------------------------
// remainders

Expression ExpressionBuilder::modulo_constant(Expression a, int64_t divisor) {
  if (divisor == 1) return scale(a, 0);
  const Interval quotients = shapes::floor_divide(facts_.interval(a), Interval::of(divisor));
  if (quotients.is_single()) {
    const Wide multiple = Wide{quotients.low} * divisor;
    if (fits(multiple)) return subtract(a, integer(static_cast<int64_t>(multiple)));
  }
  const LinearView view(a);
  // x % m is as good as x where the divisor divides m.
  SumAccumulator without(*this);
  bool changed = false;
  for (const Term& term : view.terms()) {
    const bool redundant = is_by_constant(*term.node, Kind::kMod) && term.node->operand(1)->value % divisor == 0;
    without.add(redundant ? term.node->operand(0) : term.node, term.factor);
    changed |= redundant;
  }
  if (changed) {
    without.add_constant(view.constant(), 1);
    const Expression simpler = without.finish();
    if (simpler != nullptr) return modulo_constant(simpler, divisor);
  }
  // Factors count by their residue: that of the smallest magnitude.
  SumAccumulator reduced(*this);
  for (const Term& term : view.terms()) {
    const int64_t factor = residue(term.factor, divisor);
    reduced.add(term.node, factor > divisor / 2 ? factor - divisor : factor);
  }
  reduced.add_constant(residue(view.constant(), divisor), 1);
  const Expression left = reduced.finish();
  if (left == nullptr) return nullptr;
  if (left != a) return modulo_constant(left, divisor);
  const LinearView terms(left);
  const uint64_t all = common_divisor(terms.terms());
  if (all == 0) return left;
  // (g*x + c) % (g*d) is g * ((x + c // g) % d) + c % g.
  const auto common = static_cast<int64_t>(std::gcd(all, static_cast<uint64_t>(divisor)));
  if (common > 1) {
    const Expression inner = divide_terms(left, common, nullptr);
    return inner == nullptr ? nullptr
                            : add(scale(modulo_constant(inner, divisor / common), common),
                                  integer(residue(terms.constant(), common)));
  }
  if (left->total) {
    if (const auto known = facts_.congruence(left).remainder_by(divisor)) return integer(*known);
  }
  const Term operands[] = {{left, 1}, {integer(divisor), 1}};
  return table_.make(Kind::kMod, 0, operands);
}

Expression ExpressionBuilder::modulo(Expression a, Expression b) {
  if (a == nullptr || b == nullptr) return nullptr;
  if (b->kind == Kind::kInteger) {
    if (a->kind == Kind::kInteger) {
      int64_t rest = 0;
      return checked_modulo(a->value, b->value, &rest) ? integer(rest) : nullptr;
    }
    if (b->value == 0 || b->value == kLowest) return nullptr;
    return b->value > 0 ? modulo_constant(a, b->value) : negate(modulo(negate(a), integer(-b->value)));
  }
  if (leads_negative(b)) return negate(modulo(negate(a), negate(b)));
  if (facts_.is_cancellable(b)) {
    if (a->is_integer(0)) return a;
    SumAccumulator quotient(*this);
    SumAccumulator rest(*this);
    if (split_multiples(a, b, quotient, rest)) {
      // The quotient is dropped: what may be undefined in it stays.
      const Expression dropped = quotient.finish();
      return dropped == nullptr ? nullptr : add(modulo(rest.finish(), b), scale(dropped, 0));
    }
    if (const Expression exact = polynomial_quotient(a, b)) return scale(exact, 0);
  }
  Fraction fraction{a, b, nullptr};
  if (cancel(fraction)) return multiply(modulo(fraction.dividend, fraction.divisor), fraction.cancelled);
  const Interval interval = facts_.interval(a);
  if (b->total && ((interval.low >= 0 && is_less(a, b)) || (interval.high <= 0 && is_less(b, a)))) return a;
  const Term operands[] = {{a, 1}, {b, 1}};
  return table_.make(Kind::kMod, 0, operands, facts_.is_nonzero(b));
}

}  // namespace alternator::shapes
