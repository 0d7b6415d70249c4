#include "fake/backed_symbols.h"

#include "cpython/rewrite_number.h"

#include <algorithm>

namespace alternator::fake {

using shapes::Expression;

Expression BackedSymbols::add(const Origin& origin, int64_t hint, const shapes::Interval& given) {
  const Expression symbol = environment.add_symbol(hint, given);
  origins_.push_back(origin);
  given_.push_back(given);
  return symbol;
}

Expression BackedSymbols::add_float(const Origin& origin, double hint) {
  const Expression symbol = environment.add_float_symbol(hint);
  origins_.push_back(origin);
  given_.emplace_back();
  return symbol;
}

bool BackedSymbols::has_numbers() const {
  const auto is_number = [](const Origin& origin) {
    return origin.reads == Reads::kInteger || origin.reads == Reads::kFloat;
  };
  return std::any_of(origins_.begin(), origins_.end(), is_number);
}

Ref BackedSymbols::hint_of(Expression expression) {
  ALT_CHECK(expression != nullptr && expression->has_hint, "a backed expression has a hint");
  if (expression->sort() == shapes::Sort::kFloat) return checked(PyFloat_FromDouble(expression->hint.real));
  return checked(PyLong_FromLongLong(expression->hint.integer));
}

Ref BackedSymbols::number(Expression expression) {
  expression = environment.simplify(expression);
  const bool is_float = expression->sort() == shapes::Sort::kFloat;
  if (expression->kind == shapes::Kind::kInteger || expression->kind == shapes::Kind::kFloat)
    return hint_of(expression);
  // No digits of a float make native code fail: those of this call make another trace differ (dispatch/verify_trace.h).
  Ref object = make_symbol(is_float ? &PyFloat_Type : &PyLong_Type, is_float ? hint_of(expression) : Ref());
  expressions_.emplace(object.get(), expression);
  numbers_.push_back(object);
  return object;
}

Expression BackedSymbols::expression_of(Borrowed object) const {
  const auto found = expressions_.find(object.get());
  return found != expressions_.end() ? found->second : nullptr;
}

void BackedSymbols::assume(Expression condition) {
  ALT_CHECK(condition != nullptr, "a condition that cannot be expressed");
  const auto assumed = environment.assume(condition, locate ? locate() : 0);
  ALT_CHECK(assumed != shapes::Assumed::kContradiction, "a guard contradicts the call that it is made in");
}

bool BackedSymbols::decide(Expression condition) {
  ALT_CHECK(condition != nullptr && condition->has_hint, "a condition that cannot be decided");
  if (const std::optional<bool> known = environment.decide(condition)) return *known;
  const bool holds = condition->hint.integer != 0;
  assume(holds ? condition : environment.negation(condition));
  return holds;
}

// By its symbols: what they are determines the bits of what is computed from them.
void BackedSymbols::specialize_floats(Expression expression) {
  expression = environment.simplify(expression);
  if (expression->kind == shapes::Kind::kFloatSymbol) {
    assume(environment.combine(shapes::Kind::kFloatSame, expression, environment.real(expression->hint.real)));
  } else if (expression->sort() != shapes::Sort::kFloat) {
    specialize(expression);
  } else {
    for (const shapes::Term& term : expression->terms()) specialize_floats(term.node);
  }
}

void BackedSymbols::specialize(Expression expression) {
  expression = environment.simplify(expression);
  if (expression->sort() == shapes::Sort::kFloat) {
    specialize_floats(expression);
  } else if (expression->kind != shapes::Kind::kInteger) {
    assume(environment.equal(expression, environment.integer(expression->hint.integer)));
  }
}

void BackedSymbols::specialize(Borrowed object) {
  const auto found = expressions_.find(object.get());
  if (found == expressions_.end()) return;
  const Expression expression = found->second;
  expressions_.erase(found);
  specialize(expression);
  cpython::rewrite_number(object.get(), hint_of(expression).get());
}

uint32_t BackedSymbols::result_of(Expression expression) {
  expression = environment.simplify(expression);
  for (uint32_t i = 0; i < results_.size(); i++) {
    if (results_[i] == expression) return i;
  }
  results_.push_back(expression);
  return static_cast<uint32_t>(results_.size() - 1);
}

}  // namespace alternator::fake
