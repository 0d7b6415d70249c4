// Floats, conversions, and expressions of other operands.
#include "shapes/evaluation.h"
#include "shapes/expression_builder.h"

namespace alternator::shapes {

namespace {

bool is_constant(Expression node) {
  return node->kind == Kind::kInteger || node->kind == Kind::kFloat || node->kind == Kind::kBoolean;
}

}  // namespace

Expression ExpressionBuilder::convert(Kind kind, Expression operand) {
  if (operand == nullptr) return nullptr;
  if (kind == Kind::kNot) return negation(operand);
  const Term operands[] = {{operand, 1}};
  // Infinities and NaN have no integer.
  const bool total = kind == Kind::kToFloat || kind == Kind::kFloatNeg || kind == Kind::kFloatAbs;
  const Expression node = table_.make(kind, 0, operands, total);
  if (node == nullptr || !is_constant(operand)) return node;
  return node->sort() == Sort::kFloat ? real(node->hint.real) : integer(node->hint.integer);
}

Expression ExpressionBuilder::combine(Kind kind, Expression a, Expression b) {
  if (a == nullptr || b == nullptr) return nullptr;
  bool total = true;
  if (kind == Kind::kIntTrueDiv) total = facts_.is_nonzero(b);
  if (kind == Kind::kFloatPow || kind == Kind::kPow || kind == Kind::kGcd) total = false;
  if (kind == Kind::kFloatDiv || kind == Kind::kFloatFloorDiv || kind == Kind::kFloatMod)
    total = b->kind == Kind::kFloat && b->real() != 0;
  const Term operands[] = {{a, 1}, {b, 1}};
  const Expression node = table_.make(kind, 0, operands, total);
  if (node == nullptr || !is_constant(a) || !is_constant(b)) return node;
  if (node->sort() == Sort::kInteger) return integer(node->hint.integer);
  return node->sort() == Sort::kFloat ? real(node->hint.real) : boolean(node->hint.integer != 0);
}

Expression ExpressionBuilder::rebuild(Expression node, std::span<const Expression> operands) {
  const std::span<const Term> terms = node->terms();
  switch (node->kind) {
    case Kind::kSum: {
      SumAccumulator sum(*this);
      sum.add_constant(node->value, 1);
      for (size_t index = 0; index < terms.size(); index++) sum.add(operands[index], terms[index].factor);
      return sum.finish();
    }
    case Kind::kProduct: {
      Expression product = integer(1);
      for (size_t index = 0; index < terms.size(); index++) {
        product = multiply(product, power(operands[index], terms[index].factor));
      }
      return product;
    }
    case Kind::kFloorDiv:
      return floor_divide(operands[0], operands[1]);
    case Kind::kMod:
      return modulo(operands[0], operands[1]);
    case Kind::kMin:
    case Kind::kMax:
      return extreme(node->kind, operands);
    case Kind::kEq:
    case Kind::kNe:
    case Kind::kLe:
      return compare(node->kind, operands[0], operands[1], 0);
    case Kind::kAnd:
    case Kind::kOr:
      return logic(node->kind, operands);
    default:
      break;
  }
  if (operands.empty()) return node;
  return operands.size() == 1 ? convert(node->kind, operands[0]) : combine(node->kind, operands[0], operands[1]);
}

}  // namespace alternator::shapes
