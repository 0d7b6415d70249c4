#include "shapes/facts.h"

#include "shapes/term_list.h"

#include <numeric>

namespace alternator::shapes {

namespace {

// Longer sums and products are not searched for what a fact about them says about their parts.
constexpr size_t kMaxSearched = 16;

// Each of the two makes the other sharper.
Knowledge tightened(Knowledge knowledge) {
  auto& [interval, congruence] = knowledge;
  if (interval.is_single()) {
    if (const auto exact = both(congruence, Congruence::of(interval.low))) congruence = *exact;
  }
  if (congruence.modulus == 0) {
    if (const auto exact = intersect(interval, Interval::of(congruence.remainder))) interval = *exact;
    return knowledge;
  }
  if (congruence.modulus == 1) return knowledge;
  Interval sharper = interval;
  if (interval.has_low()) {
    const Wide low = Wide{interval.low} + residue(Wide{congruence.remainder} - interval.low, congruence.modulus);
    if (fits(low)) sharper.low = static_cast<int64_t>(low);
  }
  if (interval.has_high()) {
    const Wide high = Wide{interval.high} - residue(Wide{interval.high} - congruence.remainder, congruence.modulus);
    if (fits(high)) sharper.high = static_cast<int64_t>(high);
  }
  if (sharper.low <= sharper.high) interval = sharper;
  return knowledge;
}

Knowledge combined(const Knowledge& a, const Knowledge& b) {
  const auto interval = intersect(a.interval, b.interval);
  const auto congruence = both(a.congruence, b.congruence);
  return tightened({interval.value_or(a.interval), congruence.value_or(a.congruence)});
}

}  // namespace

Facts::Entry& Facts::entry(Expression node) {
  if (node->id >= entries_.size()) entries_.resize(std::max<size_t>(table_.size(), node->id + 1));
  return entries_[node->id];
}

Knowledge Facts::about(Expression node) {
  const Entry& known = entry(node);
  if (known.version == version_) return known.cached;
  Knowledge knowledge = tightened(compute(node));
  if (const int32_t fact = entry(node).fact; fact >= 0)
    knowledge = combined(knowledge, facts_[static_cast<size_t>(fact)]);
  // Found again: the table of entries may have grown meanwhile.
  Entry& stored = entry(node);
  stored.cached = knowledge;
  stored.version = version_;
  return knowledge;
}

Knowledge Facts::compute(Expression node) {
  const std::span<const Term> terms = node->terms();
  switch (node->kind) {
    case Kind::kInteger:
      return {Interval::of(node->value), Congruence::of(node->value)};
    case Kind::kSum: {
      Knowledge sum{Interval::of(node->value), Congruence::of(node->value)};
      for (const Term& term : terms) {
        const Knowledge part = about(term.node);
        sum.interval = sum.interval + part.interval * Interval::of(term.factor);
        sum.congruence = sum.congruence + part.congruence * Congruence::of(term.factor);
      }
      if (!knows_sums_ || terms.size() < 2) return sum;
      const Primitive part = primitive(node, false);
      if (part.node == nullptr || part.node == node) return sum;
      const int32_t fact = entry(part.node).fact;
      if (fact < 0) return sum;
      const Knowledge known = facts_[static_cast<size_t>(fact)];
      return combined(sum, {known.interval * Interval::of(part.factor) + Interval::of(part.constant),
                            known.congruence * Congruence::of(part.factor) + Congruence::of(part.constant)});
    }
    case Kind::kProduct: {
      Knowledge product{Interval::of(1), Congruence::of(1)};
      for (const Term& term : terms) {
        const Knowledge part = about(term.node);
        product.interval = product.interval * power(part.interval, term.factor);
        for (int64_t step = 0; step < term.factor; step++) product.congruence = product.congruence * part.congruence;
      }
      return product;
    }
    case Kind::kFloorDiv:
    case Kind::kMod: {
      const bool divides = node->kind == Kind::kFloorDiv;
      const Knowledge dividend = about(terms[0].node);
      const Interval divisor = interval(terms[1].node);
      Knowledge result;
      result.interval = divides ? floor_divide(dividend.interval, divisor) : modulo(dividend.interval, divisor);
      if (divisor.is_single() && divisor.low > 0) {
        result.congruence =
            divides ? floor_divide(dividend.congruence, divisor.low) : modulo(dividend.congruence, divisor.low);
      }
      return result;
    }
    case Kind::kMin:
    case Kind::kMax: {
      Knowledge result = about(terms[0].node);
      for (const Term& term : terms.subspan(1)) {
        const Knowledge part = about(term.node);
        result.interval = node->kind == Kind::kMin ? minimum(result.interval, part.interval)
                                                   : maximum(result.interval, part.interval);
        result.congruence = either(result.congruence, part.congruence);
      }
      return result;
    }
    default:
      return {};
  }
}

bool Facts::is_nonzero(Expression node) {
  const Knowledge knowledge = about(node);
  if (!knowledge.interval.contains(0) || knowledge.congruence.excludes_zero()) return true;
  if (nonzero_.contains(node->id)) return true;
  const std::span<const Term> terms = node->terms();
  if (node->kind == Kind::kProduct) {
    return std::ranges::all_of(terms, [&](const Term& term) { return is_nonzero(term.node); });
  }
  return node->kind == Kind::kSum && terms.size() == 1 && node->value == 0 && terms[0].factor != 0 &&
         is_nonzero(terms[0].node);
}

Facts::Primitive Facts::primitive(Expression sum, bool create) {
  uint64_t divisor = 0;
  bool negative = false;
  for (const Term& term : sum->terms()) {
    if (term.factor == kLowest) return {};
    if (divisor == 0) negative = term.factor < 0;
    divisor = std::gcd(divisor, magnitude(term.factor));
  }
  if (divisor == 0) return {};
  const int64_t factor = negative ? -static_cast<int64_t>(divisor) : static_cast<int64_t>(divisor);
  TermList terms;
  for (const Term& term : sum->terms()) terms.push(term.node, term.factor / factor);
  Expression node = table_.find(Kind::kSum, 0, terms.span());
  if (node == nullptr && create) node = table_.make(Kind::kSum, 0, terms.span());
  return {node, factor, sum->value};
}

Knowledge& Facts::fact_of(Expression node) {
  Entry& found = entry(node);
  if (found.fact < 0) {
    found.fact = static_cast<int32_t>(facts_.size());
    facts_.emplace_back();
  }
  return facts_[static_cast<size_t>(found.fact)];
}

void Facts::learn_interval(Expression node, const Interval& wanted) {
  const Interval known = interval(node);
  const std::optional<Interval> common = intersect(known, wanted);
  if (!common || *common == known) return;
  if (node->kind == Kind::kSum && node->count > 1) {
    const Primitive part = primitive(node, true);
    if (part.node != nullptr && part.node != node) {
      // The part learns what is left for it, and tells the terms.
      const auto left = divide_exactly(*common - Interval::of(part.constant), part.factor);
      if (left) learn_interval(part.node, *left);
      return;
    }
    knows_sums_ = true;
  }
  Knowledge& fact = fact_of(node);
  const std::optional<Interval> stored = intersect(fact.interval, *common);
  if (!stored) return;
  fact.interval = *stored;
  changed();
  learn_operands(node, *common);
}

void Facts::learn_operands(Expression node, const Interval& interval) {
  const std::span<const Term> terms = node->terms();
  switch (node->kind) {
    case Kind::kSum:
      learn_terms(node, interval);
      break;
    case Kind::kProduct:
      learn_factors(node, interval);
      break;
    case Kind::kFloorDiv:
      if (const Interval divisor = this->interval(terms[1].node); divisor.is_single() && divisor.low > 0) {
        learn_interval(terms[0].node, interval * divisor + Interval{0, divisor.low - 1});
      }
      break;
    case Kind::kMod:
      if (const Interval divisor = this->interval(terms[1].node);
          divisor.is_single() && divisor.low > 0 && interval.is_single()) {
        learn_congruence(terms[0].node, {divisor.low, residue(interval.low, divisor.low)});
      }
      break;
    case Kind::kMin:
      for (const Term& term : terms) learn_interval(term.node, {interval.low, kHighest});
      break;
    case Kind::kMax:
      for (const Term& term : terms) learn_interval(term.node, {kLowest, interval.high});
      break;
    default:
      break;
  }
}

void Facts::learn_terms(Expression sum, const Interval& interval) {
  const std::span<const Term> terms = sum->terms();
  if (terms.size() > kMaxSearched) return;
  for (size_t index = 0; index < terms.size(); index++) {
    if (terms[index].factor == 0) continue;
    Interval others = Interval::of(sum->value);
    for (size_t other = 0; other < terms.size(); other++) {
      if (other != index) others = others + this->interval(terms[other].node) * Interval::of(terms[other].factor);
    }
    const auto left = divide_exactly(interval - others, terms[index].factor);
    if (left) learn_interval(terms[index].node, *left);
  }
}

void Facts::learn_factors(Expression product, const Interval& interval) {
  const std::span<const Term> terms = product->terms();
  if (terms.size() > kMaxSearched) return;
  for (size_t index = 0; index < terms.size(); index++) {
    if (terms[index].factor != 1) continue;
    Interval others = Interval::of(1);
    for (size_t other = 0; other < terms.size(); other++) {
      if (other != index) others = others * power(this->interval(terms[other].node), terms[other].factor);
    }
    if (others.low < 1) continue;
    // x * others <= high, and others >= 1.
    Interval factor;
    if (interval.has_high() && interval.high >= 0) factor.high = interval.high / others.low;
    // x * others >= low > 0: x is positive, and at least this.
    if (interval.low >= 1) {
      factor.low = others.has_high() ? static_cast<int64_t>(ceil_quotient(interval.low, others.high)) : 1;
    }
    if (factor.low <= factor.high) learn_interval(terms[index].node, factor);
  }
}

void Facts::learn_congruence(Expression node, const Congruence& wanted) {
  const Congruence known = congruence(node);
  const std::optional<Congruence> common = both(known, wanted);
  if (!common || *common == known) return;
  if (node->kind == Kind::kSum && node->count == 1 && node->terms()[0].factor != 0) {
    const Term term = node->terms()[0];
    const auto left = divide_exactly(wanted + Congruence::of(node->value) * Congruence::of(-1), term.factor);
    if (left) learn_congruence(term.node, *left);
    return;
  }
  Knowledge& fact = fact_of(node);
  const std::optional<Congruence> stored = both(fact.congruence, *common);
  if (!stored) return;
  fact.congruence = *stored;
  changed();
}

void Facts::learn_nonzero(Expression node) {
  if (nonzero_.insert(node->id).second) changed();
  // An interval that begins or ends with 0 does so no longer.
  const Interval known = interval(node);
  if (known.low == 0 && known.high > 0) learn_interval(node, {1, kHighest});
  if (known.high == 0 && known.low < 0) learn_interval(node, {kLowest, -1});
}

void Facts::learn_condition(Expression condition) {
  if (true_.insert(condition->id).second) changed();
}

}  // namespace alternator::shapes
