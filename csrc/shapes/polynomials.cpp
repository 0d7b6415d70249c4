// Sums and products of integers.
#include "shapes/expression_builder.h"

#include <array>

namespace alternator::shapes {

namespace {

// A product of two sums with more terms than this stays a product.
constexpr size_t kMaxExpanded = 64;
constexpr int64_t kMaxExponent = 64;

bool divides_by_constant(const Node& node, Kind kind) {
  return node.kind == kind && node.operand(1)->kind == Kind::kInteger;
}

}  // namespace

// ------------------------------------------------------------------------------------------------------------------
// sums

void SumAccumulator::add_constant(int64_t value, int64_t factor) {
  int64_t product = 0;
  failed_ |= !checked_multiply(value, factor, &product) || !checked_add(constant_, product, &constant_);
}

void SumAccumulator::add(Expression node, int64_t factor) {
  if (node == nullptr) {
    failed_ = true;
  } else if (node->kind == Kind::kInteger) {
    add_constant(node->value, factor);
  } else if (node->kind == Kind::kSum) {
    add_constant(node->value, factor);
    for (const Term& term : node->terms()) {
      int64_t product = 0;
      failed_ |= !checked_multiply(term.factor, factor, &product);
      terms_.push(term.node, product);
    }
  } else {
    terms_.push(node, factor);
  }
}

void SumAccumulator::merge() {
  terms_.sort();
  size_t kept = 0;
  for (size_t index = 0; index < terms_.size();) {
    Term term = terms_[index++];
    while (index < terms_.size() && terms_[index].node == term.node) {
      failed_ |= !checked_add(term.factor, terms_[index++].factor, &term.factor);
    }
    if (term.factor != 0 || !term.node->total) terms_[kept++] = term;
  }
  terms_.shrink(kept);
}

// f*k*(x // k) is f*x where k divides x, and f*k*(x // k) + f*(x % k) is f*x.
bool SumAccumulator::simplify_quotients() {
  for (size_t index = 0; index < terms_.size(); index++) {
    const Term quotient = terms_[index];
    if (!divides_by_constant(*quotient.node, Kind::kFloorDiv) || quotient.factor == 0) continue;
    const Expression dividend = quotient.node->operand(0);
    const int64_t divisor = quotient.node->operand(1)->value;
    if (divisor <= 0 || quotient.factor % divisor != 0) continue;
    const int64_t factor = quotient.factor / divisor;
    bool found = builder_.facts().congruence(dividend).remainder_by(divisor) == 0;
    for (size_t other = 0; other < terms_.size() && !found; other++) {
      const Term& rest = terms_[other];
      if (!divides_by_constant(*rest.node, Kind::kMod) || rest.factor != factor) continue;
      if (rest.node->operand(0) != dividend || rest.node->operand(1)->value != divisor) continue;
      terms_[other].factor = 0;
      found = true;
    }
    if (!found) continue;
    terms_[index].factor = 0;
    // The dividend is as defined as its quotient, so nothing undefined is lost with the terms that are 0 now.
    TermList old;
    for (const Term& term : terms_) {
      if (term.factor != 0 || (!term.node->total && term.node != quotient.node)) old.push(term.node, term.factor);
    }
    terms_.shrink(0);
    for (const Term& term : old) terms_.push(term.node, term.factor);
    add(dividend, factor);
    return true;
  }
  return false;
}

bool SumAccumulator::settle() {
  if (!failed_) merge();
  while (!failed_ && simplify_quotients()) merge();
  return !failed_;
}

Expression SumAccumulator::make(ExpressionBuilder& builder, int64_t constant, std::span<const Term> terms) {
  if (terms.empty()) return builder.integer(constant);
  if (constant == 0 && terms.size() == 1 && terms[0].factor == 1) return terms[0].node;
  return builder.table_.make(Kind::kSum, constant, terms);
}

Expression SumAccumulator::finish() { return settle() ? make(builder_, constant_, terms_.span()) : nullptr; }

Expression ExpressionBuilder::add(Expression a, Expression b) {
  SumAccumulator sum(*this);
  sum.add(a, 1);
  sum.add(b, 1);
  return sum.finish();
}

Expression ExpressionBuilder::subtract(Expression a, Expression b) {
  SumAccumulator sum(*this);
  sum.add(a, 1);
  sum.add(b, -1);
  return sum.finish();
}

Expression ExpressionBuilder::scale(Expression a, int64_t factor) {
  SumAccumulator sum(*this);
  sum.add(a, factor);
  return sum.finish();
}

// --------------------------------------------------------------------------------------------------------------
// products

// The product of two terms, neither of them a constant or a sum to be expanded.
Expression ExpressionBuilder::monomial(Expression a, Expression b) {
  TermList factors;
  for (Expression operand : {a, b}) {
    const FactorView view(operand);
    for (const Term& factor : view.factors()) factors.push(factor.node, factor.factor);
  }
  factors.sort();
  size_t kept = 0;
  for (size_t index = 0; index < factors.size();) {
    Term factor = factors[index++];
    while (index < factors.size() && factors[index].node == factor.node) factor.factor += factors[index++].factor;
    if (factor.factor > kMaxExponent) return nullptr;
    factors[kept++] = factor;
  }
  factors.shrink(kept);
  return table_.make(Kind::kProduct, 0, factors.span());
}

Expression ExpressionBuilder::multiply(Expression a, Expression b) {
  if (a == nullptr || b == nullptr) return nullptr;
  if (a->kind == Kind::kInteger) return scale(b, a->value);
  if (b->kind == Kind::kInteger) return scale(a, b->value);
  if (a->kind != Kind::kSum && b->kind != Kind::kSum) return monomial(a, b);
  const LinearView left(a);
  const LinearView right(b);
  if ((left.terms().size() + 1) * (right.terms().size() + 1) > kMaxExpanded) return monomial(a, b);
  SumAccumulator sum(*this);
  for (const Term& x : left.terms()) {
    for (const Term& y : right.terms()) {
      int64_t factor = 0;
      if (!checked_multiply(x.factor, y.factor, &factor)) return nullptr;
      // Terms of a sum may be products that were not expanded: their product stays one too.
      const Expression product = monomial(x.node, y.node);
      if (product == nullptr) return nullptr;
      sum.add(product, factor);
    }
    if (right.constant() != 0) {
      int64_t factor = 0;
      if (!checked_multiply(x.factor, right.constant(), &factor)) return nullptr;
      sum.add(x.node, factor);
    }
  }
  if (left.constant() != 0) {
    for (const Term& y : right.terms()) {
      int64_t factor = 0;
      if (!checked_multiply(y.factor, left.constant(), &factor)) return nullptr;
      sum.add(y.node, factor);
    }
  }
  sum.add_constant(left.constant(), right.constant());
  return sum.finish();
}

Expression ExpressionBuilder::power(Expression a, int64_t exponent) {
  if (a == nullptr || exponent < 0 || exponent > kMaxExponent) return nullptr;
  if (exponent == 0) return add(scale(a, 0), integer(1));
  Expression result = a;
  for (int64_t step = 1; step < exponent; step++) result = multiply(result, a);
  return result;
}

}  // namespace alternator::shapes
