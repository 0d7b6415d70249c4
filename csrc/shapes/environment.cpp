#include "shapes/environment.h"

#include "py/error.h"

#include <algorithm>

namespace alternator::shapes {

Expression ShapeEnvironment::add_symbol(std::optional<int64_t> hint, const Interval& given) {
  ALT_CHECK(given.low <= given.high, "an interval has a value");
  if (hint) ALT_CHECK(given.contains(*hint), "a hint lies in the given interval");
  std::optional<Register> value;
  if (hint) value = Register{.integer = *hint};
  const Expression symbol = table_.make_symbol(Kind::kSymbol, static_cast<int64_t>(symbols_.size()), value);
  symbols_.push_back(symbol);
  replacements_.push_back(nullptr);
  facts_.learn_interval(symbol, given);
  return symbol;
}

Expression ShapeEnvironment::add_float_symbol(std::optional<double> hint) {
  std::optional<Register> value;
  if (hint) value = Register{.real = *hint};
  const Expression symbol = table_.make_symbol(Kind::kFloatSymbol, static_cast<int64_t>(symbols_.size()), value);
  symbols_.push_back(symbol);
  replacements_.push_back(nullptr);
  return symbol;
}

// --------------------------------------------------------------------------------------------------------
// simplification

Expression ShapeEnvironment::simplify(Expression node) {
  if (node == nullptr) return nullptr;
  if (node->id >= simplified_.size()) simplified_.resize(std::max<size_t>(table_.size(), node->id + 1));
  if (simplified_[node->id].version == facts_.version()) return simplified_[node->id].node;
  Expression result = simplify_now(node);
  // What overflows when it is rewritten stays as it is: it is true of the same values.
  if (result == nullptr) result = node;
  if (result->sort() == Sort::kInteger && result->total) {
    const Interval interval = facts_.interval(result);
    if (interval.is_single()) result = integer(interval.low);
  }
  // The tables may have grown, but no fact was learned.
  simplified_[node->id] = {facts_.version(), result};
  return result;
}

Expression ShapeEnvironment::simplify_now(Expression node) {
  if (node->kind == Kind::kSymbol || node->kind == Kind::kFloatSymbol) {
    const Expression replacement = replacements_[static_cast<size_t>(node->value)];
    return replacement == nullptr ? node : simplify(replacement);
  }
  if (node->count == 0) return node;
  std::vector<Expression> operands;
  operands.reserve(node->count);
  for (const Term& term : node->terms()) operands.push_back(simplify(term.node));
  return rebuild(node, operands);
}

// -------------------------------------------------------------------------------------------------------------
// decisions

Interval ShapeEnvironment::difference_interval(Expression comparison) {
  const Interval apart = facts_.interval(comparison->operand(0)) - facts_.interval(comparison->operand(1));
  const Expression together = difference(comparison);
  if (together == nullptr) return apart;
  Interval interval = intersect(apart, facts_.interval(together)).value_or(apart);
  // x*y - x is x * (y - 1).
  if (together->kind != Kind::kSum || together->value != 0) return interval;
  const FactorView candidates(together->operand(0));
  for (const Term& factor : candidates.factors()) {
    const std::span<const Term> terms = together->terms();
    const bool common = std::ranges::all_of(
        terms, [&](const Term& term) { return FactorView(term.node).exponent_of(factor.node) > 0; });
    if (!common || terms.size() < 2) continue;
    const Expression rest = divide_terms(together, 1, factor.node);
    if (rest == nullptr) continue;
    const Interval product = facts_.interval(factor.node) * facts_.interval(rest);
    interval = intersect(interval, product).value_or(interval);
  }
  return interval;
}

std::optional<bool> ShapeEnvironment::decide_comparison(Expression comparison) {
  if (!comparison->total) return std::nullopt;
  const Interval interval = difference_interval(comparison);
  if (comparison->kind == Kind::kLe) {
    if (interval.high <= 0) return true;
    if (interval.low > 0) return false;
    return std::nullopt;
  }
  const bool equal = comparison->kind == Kind::kEq;
  if (interval == Interval::of(0)) return equal;
  if (!interval.contains(0)) return !equal;
  const Expression together = difference(comparison);
  if (together != nullptr && facts_.is_nonzero(together)) return !equal;
  return std::nullopt;
}

std::optional<bool> ShapeEnvironment::decide(Expression condition) {
  condition = simplify(condition);
  if (condition == nullptr) return std::nullopt;
  if (condition->kind == Kind::kBoolean) return condition->value != 0;
  if (facts_.holds(condition)) return true;
  const Expression opposite = negation(condition);
  if (opposite != nullptr && facts_.holds(opposite)) return false;
  switch (condition->kind) {
    case Kind::kEq:
    case Kind::kNe:
    case Kind::kLe:
      return decide_comparison(condition);
    case Kind::kNot: {
      const std::optional<bool> inner = decide(condition->operand(0));
      return inner ? std::optional(!*inner) : std::nullopt;
    }
    case Kind::kAnd:
    case Kind::kOr: {
      const bool decisive = condition->kind == Kind::kOr;
      bool all = true;
      for (const Term& term : condition->terms()) {
        const std::optional<bool> part = decide(term.node);
        if (part == decisive) return decisive;
        all &= part.has_value();
      }
      return all ? std::optional(!decisive) : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

// -----------------------------------------------------------------------------------------------------------
// assumptions

Assumed ShapeEnvironment::assume(Expression condition, uint32_t tag) {
  condition = simplify(condition);
  ALT_CHECK(condition != nullptr, "there is a condition");
  ALT_CHECK(condition->sort() == Sort::kBoolean, "it is a condition");
  if (const std::optional<bool> decided = decide(condition)) {
    return *decided ? Assumed::kKnown : Assumed::kContradiction;
  }
  if (condition->has_hint && condition->hint.integer == 0) return Assumed::kContradiction;
  guards_.push_back({condition, tag});
  learn(condition);
  return Assumed::kRecorded;
}

void ShapeEnvironment::learn(Expression condition) {
  facts_.learn_condition(condition);
  switch (condition->kind) {
    case Kind::kAnd:
      for (const Term& term : condition->terms()) learn(term.node);
      break;
    case Kind::kEq:
      learn_equality(condition);
      break;
    case Kind::kNe:
      if (const Expression sum = difference(condition)) facts_.learn_nonzero(sum);
      break;
    case Kind::kLe:
      if (const Expression sum = difference(condition)) facts_.learn_interval(sum, {kLowest, 0});
      break;
    case Kind::kFloatEq:
    case Kind::kFloatSame:
      learn_float(condition);
      break;
    default:
      break;
  }
}

// What equals a float other than a zero has its bits.
void ShapeEnvironment::learn_float(Expression comparison) {
  Expression symbol = comparison->operand(0), value = comparison->operand(1);
  if (symbol->kind == Kind::kFloat) std::swap(symbol, value);
  if (symbol->kind != Kind::kFloatSymbol || value->kind != Kind::kFloat) return;
  if (comparison->kind == Kind::kFloatEq && value->real() == 0) return;
  replacements_[static_cast<size_t>(symbol->value)] = value;
  facts_.changed();
}

void ShapeEnvironment::learn_equality(Expression comparison) {
  const Expression sum = difference(comparison);
  if (sum == nullptr) return;
  facts_.learn_interval(sum, Interval::of(0));
  solve(sum);
}

// Whether all symbols in it stand for themselves, and `except` is not among them.
bool ShapeEnvironment::is_root(Expression node, Expression except) const {
  std::vector<Expression> open{node};
  std::unordered_set<Expression> seen;
  while (!open.empty()) {
    const Expression next = open.back();
    open.pop_back();
    if (next == except) return false;
    if (next->kind == Kind::kSymbol && replacements_[static_cast<size_t>(next->value)] != nullptr) return false;
    for (const Term& term : next->terms()) {
      if (seen.insert(term.node).second) open.push_back(term.node);
    }
  }
  return true;
}

// From sum == 0: the latest symbol that the others determine stands for that expression from here on.
void ShapeEnvironment::solve(Expression sum) {
  if (!sum->total || sum->kind != Kind::kSum) return;
  Term solved{nullptr, 0};
  Expression value = nullptr;
  for (const Term& term : sum->terms()) {
    if (term.node->kind != Kind::kSymbol || (term.factor != 1 && term.factor != -1)) continue;
    if (!is_root(term.node, nullptr)) continue;
    const Expression others = scale(subtract(sum, scale(term.node, term.factor)), -term.factor);
    if (others == nullptr || others->kind == Kind::kInteger || !is_root(others, term.node)) continue;
    // A hint is not given up.
    if (term.node->has_hint && !others->has_hint) continue;
    if (solved.node != nullptr && solved.node->value > term.node->value) continue;
    solved = term;
    value = others;
  }
  if (solved.node == nullptr) return;
  const Knowledge known = facts_.about(solved.node);
  replacements_[static_cast<size_t>(solved.node->value)] = value;
  facts_.changed();
  facts_.learn_interval(value, known.interval);
  facts_.learn_congruence(value, known.congruence);
  // Earlier conditions, in terms of the symbols that are left.
  for (const Guard& guard : guards_) {
    const Expression condition = simplify(guard.condition);
    if (condition->kind == Kind::kBoolean) continue;
    facts_.learn_condition(condition);
    if (condition->kind != Kind::kLe && condition->kind != Kind::kNe) continue;
    const Expression left = difference(condition);
    if (left == nullptr) continue;
    if (condition->kind == Kind::kLe) facts_.learn_interval(left, {kLowest, 0});
    if (condition->kind == Kind::kNe) facts_.learn_nonzero(left);
  }
}

}  // namespace alternator::shapes
