#include "trace/symbolic/backed_operations.h"

#include <optional>
#include <utility>

namespace alternator::trace {

using shapes::Expression;
using shapes::Kind;
using shapes::ShapeEnvironment;
using shapes::Sort;

namespace {

bool is_integer(Expression number) { return number->sort() == Sort::kInteger; }

// As Python converts it: rounded to the nearest double.
Expression as_float(ShapeEnvironment& environment, Expression number) {
  return number != nullptr && is_integer(number) ? environment.convert(Kind::kToFloat, number) : number;
}

template <class Row, size_t kCount>
std::optional<Kind> kind_of(const Row (&rows)[kCount], std::string_view function) {
  for (const auto& [name, kind] : rows) {
    if (function == name) return kind;
  }
  return std::nullopt;
}

using Row = std::pair<std::string_view, Kind>;

constexpr Row kOfFloats[] = {
    {"add", Kind::kFloatAdd},     {"sub", Kind::kFloatSub},           {"mul", Kind::kFloatMul},
    {"truediv", Kind::kFloatDiv}, {"floordiv", Kind::kFloatFloorDiv}, {"mod", Kind::kFloatMod},
    {"pow", Kind::kFloatPow},
};
// The result is one of the operands.
constexpr Row kExtremes[] = {{"min", Kind::kFloatMin}, {"max", Kind::kFloatMax}};
constexpr Row kOfOneFloat[] = {{"neg", Kind::kFloatNeg}, {"abs", Kind::kFloatAbs}};
constexpr Row kToInteger[] = {{"int", Kind::kTruncToInt},
                              {"trunc", Kind::kTruncToInt},
                              {"floor", Kind::kFloorToInt},
                              {"ceil", Kind::kCeilToInt},
                              {"round", Kind::kRoundToInt}};
constexpr Row kFunctions[] = {{"sqrt", Kind::kFloatSqrt}, {"exp", Kind::kFloatExp}, {"log", Kind::kFloatLog},
                              {"log2", Kind::kFloatLog2}, {"sin", Kind::kFloatSin}, {"cos", Kind::kFloatCos},
                              {"tanh", Kind::kFloatTanh}};

Expression power_of_integers(fake::BackedSymbols& symbols, Expression a, Expression b) {
  constexpr int64_t kWrittenOut = 64;
  ShapeEnvironment& environment = symbols.environment;
  if (b->kind == Kind::kInteger && b->value >= 0 && b->value <= kWrittenOut) return environment.power(a, b->value);
  const Expression is_negative = environment.less(b, environment.integer(0));
  if (is_negative == nullptr) return nullptr;
  if (symbols.decide(is_negative))
    return environment.combine(Kind::kFloatPow, as_float(environment, a), as_float(environment, b));
  return environment.combine(Kind::kPow, a, b);
}

Expression of_integers(fake::BackedSymbols& symbols, std::string_view function, Expression a, Expression b) {
  ShapeEnvironment& environment = symbols.environment;
  if (function == "add") return environment.add(a, b);
  if (function == "sub") return environment.subtract(a, b);
  if (function == "mul") return environment.multiply(a, b);
  if (function == "floordiv") return environment.floor_divide(a, b);
  if (function == "mod") return environment.modulo(a, b);
  if (function == "max") return environment.maximum(a, b);
  if (function == "min") return environment.minimum(a, b);
  if (function == "truediv") return environment.combine(Kind::kIntTrueDiv, a, b);
  if (function == "gcd") return environment.combine(Kind::kGcd, a, b);
  return function == "pow" ? power_of_integers(symbols, a, b) : nullptr;
}

Expression of_one(ShapeEnvironment& environment, std::string_view function, Expression number) {
  if (const auto kind = kind_of(kFunctions, function)) return environment.convert(*kind, as_float(environment, number));
  if (function == "float") return as_float(environment, number);
  const auto to_integer = kind_of(kToInteger, function);
  if (is_integer(number)) {
    if (to_integer) return number;
    if (function == "neg") return environment.negate(number);
    return function == "abs" ? environment.absolute(number) : nullptr;
  }
  if (to_integer) return environment.convert(*to_integer, number);
  const auto kind = kind_of(kOfOneFloat, function);
  return kind ? environment.convert(*kind, number) : nullptr;
}

Expression copysign_of(ShapeEnvironment& environment, Expression a, Expression b) {
  return environment.combine(Kind::kFloatCopySign, as_float(environment, a), as_float(environment, b));
}

// A float that equals the integer: guarded where doubles do not hold all of its values. Null: it may have none.
Expression as_exact_float(fake::BackedSymbols& symbols, Expression number) {
  constexpr int64_t kExact = int64_t{1} << 53;
  ShapeEnvironment& environment = symbols.environment;
  if (!is_integer(number)) return number;
  const Expression above = environment.less_equal(environment.integer(-kExact), number),
                   below = environment.less_equal(number, environment.integer(kExact));
  if (above == nullptr || below == nullptr) return nullptr;
  return symbols.decide(above) && symbols.decide(below) ? as_float(environment, number) : nullptr;
}

}  // namespace

Expression operation_of(fake::BackedSymbols& symbols, std::string_view function, Expression a, Expression b) {
  ShapeEnvironment& environment = symbols.environment;
  if (a == nullptr) return nullptr;
  if (b == nullptr) return of_one(environment, function, a);
  if (is_integer(a) && is_integer(b) && function != "copysign") return of_integers(symbols, function, a, b);
  if (function == "copysign") return copysign_of(environment, a, b);
  std::optional<Kind> kind = kind_of(kOfFloats, function);
  if (!kind && is_integer(a) == is_integer(b)) kind = kind_of(kExtremes, function);
  return kind ? environment.combine(*kind, as_float(environment, a), as_float(environment, b)) : nullptr;
}

Expression comparison_of(fake::BackedSymbols& symbols, int operation, Expression a, Expression b) {
  ShapeEnvironment& environment = symbols.environment;
  if (a == nullptr || b == nullptr) return nullptr;
  if (operation == Py_GT || operation == Py_GE) return comparison_of(symbols, operation == Py_GT ? Py_LT : Py_LE, b, a);
  const bool integers = is_integer(a) && is_integer(b);
  if (!integers) {
    a = as_exact_float(symbols, a);
    b = as_exact_float(symbols, b);
  }
  switch (operation) {
    case Py_LT:
      return integers ? environment.less(a, b) : environment.combine(Kind::kFloatLt, a, b);
    case Py_LE:
      return integers ? environment.less_equal(a, b) : environment.combine(Kind::kFloatLe, a, b);
    case Py_EQ:
      return integers ? environment.equal(a, b) : environment.combine(Kind::kFloatEq, a, b);
    default:
      return integers ? environment.not_equal(a, b) : environment.combine(Kind::kFloatNe, a, b);
  }
}

Expression truth_of(fake::BackedSymbols& symbols, Expression number) {
  ShapeEnvironment& environment = symbols.environment;
  return is_integer(number) ? environment.not_equal(number, environment.integer(0))
                            : environment.combine(Kind::kFloatNe, number, environment.real(0));
}

}  // namespace alternator::trace
