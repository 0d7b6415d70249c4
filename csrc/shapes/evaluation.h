// The value of an operation, from the values of its operands.
#pragma once

#include "shapes/expression.h"
#include "shapes/scalar_math.h"

#include <algorithm>

namespace alternator::shapes {

struct Value {
  Register number{};
  bool defined = false;
};

inline Value integer_value(int64_t value) { return {{.integer = value}, true}; }
inline Value real_value(double value) { return {{.real = value}, true}; }

// Of integers or booleans.
inline Value apply_binary(Kind kind, int64_t a, int64_t b) {
  Value result = integer_value(0);
  int64_t& number = result.number.integer;
  switch (kind) {
    case Kind::kFloorDiv:
      result.defined = checked_floor_divide(a, b, &number);
      break;
    case Kind::kMod:
      result.defined = checked_modulo(a, b, &number);
      break;
    case Kind::kMin:
      number = std::min(a, b);
      break;
    case Kind::kMax:
      number = std::max(a, b);
      break;
    case Kind::kPow:
      result.defined = b >= 0 && checked_power(a, b, &number);
      break;
    case Kind::kGcd:
      result.defined = a != kLowest && b != kLowest;
      if (result.defined) number = std::gcd(a, b);
      break;
    case Kind::kEq:
      number = static_cast<int64_t>(a == b);
      break;
    case Kind::kNe:
      number = static_cast<int64_t>(a != b);
      break;
    case Kind::kLe:
      number = static_cast<int64_t>(a <= b);
      break;
    case Kind::kIntTrueDiv:
      result.defined = checked_true_divide(a, b, &result.number.real);
      break;
    default:
      result.defined = false;
  }
  return result;
}

// Of floats.
inline Value apply_binary(Kind kind, double a, double b) {
  Value result = real_value(0);
  switch (kind) {
    case Kind::kFloatAdd:
      result.number.real = a + b;
      break;
    case Kind::kFloatSub:
      result.number.real = a - b;
      break;
    case Kind::kFloatMul:
      result.number.real = a * b;
      break;
    case Kind::kFloatDiv:
      result.defined = checked_float_divide(a, b, &result.number.real);
      break;
    case Kind::kFloatFloorDiv:
      result.defined = b != 0;
      if (b != 0) result.number.real = divide_floats(a, b).quotient;
      break;
    case Kind::kFloatMod:
      result.defined = b != 0;
      if (b != 0) result.number.real = divide_floats(a, b).remainder;
      break;
    case Kind::kFloatPow:
      result.defined = checked_float_power(a, b, &result.number.real);
      break;
    case Kind::kFloatCopySign:
      result.number.real = std::copysign(a, b);
      break;
    case Kind::kFloatMin:
      result.number.real = b < a ? b : a;
      break;
    case Kind::kFloatMax:
      result.number.real = b > a ? b : a;
      break;
    case Kind::kFloatEq:
      return integer_value(static_cast<int64_t>(a == b));
    case Kind::kFloatNe:
      return integer_value(static_cast<int64_t>(a != b));
    case Kind::kFloatLt:
      return integer_value(static_cast<int64_t>(a < b));
    case Kind::kFloatLe:
      return integer_value(static_cast<int64_t>(a <= b));
    case Kind::kFloatSame:
      return integer_value(static_cast<int64_t>(std::bit_cast<int64_t>(a) == std::bit_cast<int64_t>(b)));
    default:
      result.defined = false;
  }
  return result;
}

// A function of the module math, where it raises nothing: of finite floats, with a finite result.
inline Value apply_function(Kind kind, double operand) {
  Value result = real_value(operand);
  double& number = result.number.real;
  switch (kind) {
    case Kind::kFloatExp:
      number = std::exp(operand);
      break;
    case Kind::kFloatLog:
      number = operand > 0 ? std::log(operand) : NAN;
      break;
    case Kind::kFloatLog2:
      number = operand > 0 ? std::log2(operand) : NAN;
      break;
    case Kind::kFloatSin:
      number = std::sin(operand);
      break;
    case Kind::kFloatCos:
      number = std::cos(operand);
      break;
    case Kind::kFloatTanh:
      number = std::tanh(operand);
      break;
    default:
      return {};
  }
  result.defined = std::isfinite(operand) && std::isfinite(number);
  return result;
}

inline Value apply_unary(Kind kind, Register operand) {
  Value result = integer_value(0);
  int64_t& number = result.number.integer;
  switch (kind) {
    case Kind::kNot:
      number = static_cast<int64_t>(operand.integer == 0);
      break;
    case Kind::kToFloat:
      return real_value(static_cast<double>(operand.integer));
    case Kind::kFloatNeg:
      return real_value(-operand.real);
    case Kind::kFloatAbs:
      return real_value(std::fabs(operand.real));
    case Kind::kFloatSqrt:
      return {{.real = std::sqrt(operand.real)}, !(operand.real < 0)};
    case Kind::kTruncToInt:
      result.defined = checked_to_integer(std::trunc(operand.real), &number);
      break;
    case Kind::kFloorToInt:
      result.defined = checked_to_integer(std::floor(operand.real), &number);
      break;
    case Kind::kCeilToInt:
      result.defined = checked_to_integer(std::ceil(operand.real), &number);
      break;
    case Kind::kRoundToInt:
      result.defined = checked_to_integer(round_half_even(operand.real), &number);
      break;
    default:
      return apply_function(kind, operand.real);
  }
  return result;
}

inline bool takes_floats(Kind kind) {
  return kind >= Kind::kFloatAdd;  // the last rows of kinds.def; the unary one among them has one operand
}

inline bool takes_one(Kind kind) {
  return kind == Kind::kNot || kind == Kind::kToFloat || (kind >= Kind::kTruncToInt && kind <= Kind::kRoundToInt) ||
         (kind >= Kind::kFloatNeg && kind <= Kind::kFloatTanh);
}

// An `and` is false as soon as one part is, an `or` true as soon as one is, whatever the others are.
inline Value apply_logic(Kind kind, const Value& a, const Value& b) {
  const int64_t decisive = static_cast<int64_t>(kind == Kind::kOr);
  if ((a.defined && a.number.integer == decisive) || (b.defined && b.number.integer == decisive)) {
    return integer_value(decisive);
  }
  return {{.integer = 1 - decisive}, a.defined && b.defined};
}

// Exact, as long as the result fits: the steps between may be wider than int64.
class WideSum {
 public:
  explicit WideSum(int64_t constant) : total_(constant) {}
  void add(int64_t value, int64_t factor) {
    overflow_ |= __builtin_add_overflow(total_, static_cast<Wide>(value) * factor, &total_);
  }
  Value value() const { return {{.integer = static_cast<int64_t>(total_)}, !overflow_ && fits(total_)}; }

 private:
  Wide total_;
  bool overflow_ = false;
};

// `value_of` gives the Value of an operand.
template <class Lookup>
Value apply(Kind kind, int64_t value, std::span<const Term> terms, Lookup value_of) {
  switch (kind) {
    case Kind::kInteger:
    case Kind::kBoolean:
    case Kind::kFloat:
      return integer_value(value);  // the bits of a float are its value
    case Kind::kSum: {
      WideSum sum(value);
      for (const Term& term : terms) {
        const Value operand = value_of(term.node);
        if (!operand.defined) return {};
        sum.add(operand.number.integer, term.factor);
      }
      return sum.value();
    }
    case Kind::kProduct: {
      Value product = integer_value(1);
      for (const Term& term : terms) {
        const Value operand = value_of(term.node);
        int64_t power = 0;
        if (!operand.defined || !checked_power(operand.number.integer, term.factor, &power)) return {};
        if (!checked_multiply(product.number.integer, power, &product.number.integer)) return {};
      }
      return product;
    }
    default:
      break;
  }
  if (terms.empty()) return {};
  Value result = value_of(terms[0].node);
  if (terms.size() == 1) return result.defined ? apply_unary(kind, result.number) : Value{};
  for (const Term& term : terms.subspan(1)) {
    const Value operand = value_of(term.node);
    if (kind == Kind::kAnd || kind == Kind::kOr) {
      result = apply_logic(kind, result, operand);
    } else if (!result.defined || !operand.defined) {
      return {};
    } else if (takes_floats(kind)) {
      result = apply_binary(kind, result.number.real, operand.number.real);
    } else {
      result = apply_binary(kind, result.number.integer, operand.number.integer);
    }
  }
  return result;
}

}  // namespace alternator::shapes
