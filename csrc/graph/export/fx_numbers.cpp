#include "graph/export/fx_numbers.h"

#include "graph/record/record_error.h"
#include "graph/record/torch_types.h"

namespace alternator::graph {

using shapes::Expression;
using shapes::Kind;
using shapes::Term;

static Ref integer(int64_t value) { return checked(PyLong_FromLongLong(value)); }

Ref FxNumbers::call(const char* module, const char* name, Ref first, Ref second) {
  Ref function = torch_name(module, name);
  Ref arguments = checked(PyTuple_Pack(2, first.get(), second.get()));
  return graph_.add(FxOp::CallFunction, function, arguments, Borrowed(), name);
}

Ref FxNumbers::of(Expression expression) {
  Ref& known = known_[expression];
  if (known) return known;
  Ref made = build(expression);
  return known_[expression] = std::move(made);
}

Ref FxNumbers::build(Expression expression) {
  Ref result;
  // operator.NAME of what there is so far and one more.
  const auto append = [&](const char* module, const char* name, Ref more) {
    result = result ? call(module, name, std::move(result), std::move(more)) : std::move(more);
  };
  switch (expression->kind) {
    case Kind::kInteger:
      return integer(expression->value);
    case Kind::kSum:
      for (const Term& term : expression->terms())
        append("operator", "add",
               term.factor == 1 ? of(term.node) : call("operator", "mul", of(term.node), integer(term.factor)));
      if (expression->value != 0) append("operator", "add", integer(expression->value));
      return result;
    case Kind::kProduct:
      for (const Term& term : expression->terms())
        for (int64_t i = 0; i < term.factor; i++) append("operator", "mul", of(term.node));
      return result;
    case Kind::kFloorDiv:
      return call("operator", "floordiv", of(expression->operand(0)), of(expression->operand(1)));
    case Kind::kMod:
      return call("operator", "mod", of(expression->operand(0)), of(expression->operand(1)));
    case Kind::kMin:
    case Kind::kMax:
      for (const Term& term : expression->terms())
        append("torch", expression->kind == Kind::kMin ? "sym_min" : "sym_max", of(term.node));
      return result;
    default:
      record_error("a number that no graph can compute");
  }
}

}  // namespace alternator::graph
