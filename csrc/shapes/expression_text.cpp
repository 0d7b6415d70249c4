#include "shapes/expression_text.h"

#include "py/error.h"

#include <cstring>
#include <memory>

namespace alternator::shapes {

namespace {

// How tightly an operator binds, loosest first.
enum class Binding : uint8_t { kOr, kAnd, kNot, kComparison, kSum, kProduct, kUnary, kPower, kAtom };

struct Piece {
  std::string text;
  Binding binding;
};

std::string float_text(double value) {
  const std::unique_ptr<char, void (*)(void*)> digits(PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, nullptr),
                                                      PyMem_Free);
  if (digits == nullptr) throw PyError();
  const std::string text = digits.get();
  return text.find_first_of("in") == std::string::npos ? text : "float('" + text + "')";
}

// What is written as a call.
std::string function_of(Kind kind) {
  switch (kind) {
    case Kind::kMin:
    case Kind::kFloatMin:
      return "min";
    case Kind::kMax:
    case Kind::kFloatMax:
      return "max";
    case Kind::kToFloat:
      return "float";
    case Kind::kTruncToInt:
      return "int";
    case Kind::kFloorToInt:
      return "math.floor";
    case Kind::kCeilToInt:
      return "math.ceil";
    case Kind::kRoundToInt:
      return "round";
    case Kind::kFloatAbs:
      return "abs";
    case Kind::kGcd:
      return "math.gcd";
    default:  // "float_sqrt"
      return std::string("math.") + (name(kind) + std::strlen("float_"));
  }
}

class Writer {
 public:
  explicit Writer(const SymbolNames& names) : names_(names) {}

  Piece write(Expression node) {
    switch (node->kind) {
      case Kind::kInteger:
        return {std::to_string(node->value), node->value < 0 ? Binding::kUnary : Binding::kAtom};
      case Kind::kFloat: {
        std::string digits = float_text(node->real());
        const Binding binding = digits[0] == '-' ? Binding::kUnary : Binding::kAtom;
        return {std::move(digits), binding};
      }
      case Kind::kBoolean:
        return {node->value != 0 ? "True" : "False", Binding::kAtom};
      case Kind::kSymbol:
      case Kind::kFloatSymbol:
        return {names_(static_cast<size_t>(node->value)), Binding::kAtom};
      case Kind::kSum:
        return sum(node, 0);
      case Kind::kProduct:
        return product(node);
      case Kind::kFloorDiv:
      case Kind::kFloatFloorDiv:
        return binary(node, " // ", Binding::kProduct);
      case Kind::kMod:
      case Kind::kFloatMod:
        return binary(node, " % ", Binding::kProduct);
      case Kind::kIntTrueDiv:
      case Kind::kFloatDiv:
        return binary(node, " / ", Binding::kProduct);
      case Kind::kFloatMul:
        return binary(node, " * ", Binding::kProduct);
      case Kind::kFloatAdd:
        return binary(node, " + ", Binding::kSum);
      case Kind::kFloatSub:
        return binary(node, " - ", Binding::kSum);
      case Kind::kFloatNeg:
        return {"-" + inside(node->operand(0), Binding::kPower), Binding::kUnary};
      case Kind::kPow:
      case Kind::kFloatPow:
        return {inside(node->operand(0), Binding::kAtom) + "**" + inside(node->operand(1), Binding::kAtom),
                Binding::kPower};
      case Kind::kFloatSame:
        return same(node);
      case Kind::kEq:
      case Kind::kFloatEq:
        return comparison(node, " == ");
      case Kind::kNe:
      case Kind::kFloatNe:
        return comparison(node, " != ");
      case Kind::kFloatLt:
        return comparison(node, " < ");
      case Kind::kFloatLe:
        return comparison(node, " <= ");
      case Kind::kLe:
        return less_equal(node);
      case Kind::kAnd:
        return list(node, " and ", Binding::kAnd);
      case Kind::kOr:
        return list(node, " or ", Binding::kOr);
      case Kind::kNot:
        return {"not " + inside(node->operand(0), Binding::kNot), Binding::kNot};
      default:
        break;
    }
    return call(function_of(node->kind).c_str(), node);
  }

 private:
  // In parentheses if it binds looser than `least`.
  std::string inside(Expression node, Binding least) {
    Piece piece = write(node);
    return piece.binding < least ? "(" + piece.text + ")" : std::move(piece.text);
  }

  static Binding next(Binding binding) { return static_cast<Binding>(static_cast<int>(binding) + 1); }

  // The left side of an operator may bind as the operator itself, the right side may not.
  Piece binary(Expression node, const char* sign, Binding binding) {
    return {inside(node->operand(0), binding) + sign + inside(node->operand(1), next(binding)), binding};
  }
  Piece comparison(Expression node, const char* sign) {
    return {inside(node->operand(0), Binding::kSum) + sign + inside(node->operand(1), Binding::kSum),
            Binding::kComparison};
  }

  // Of most floats `==` says the same.
  Piece same(Expression node) {
    const Expression right = node->operand(1);
    if (right->kind == Kind::kFloat && right->real() == right->real() && right->real() != 0)
      return comparison(node, " == ");
    const std::string left = write(node->operand(0)).text;
    return {"struct.pack('d', " + left + ") == struct.pack('d', " + write(right).text + ")", Binding::kComparison};
  }

  // left <= right, with what is constant on the right and `<` where that is shorter.
  Piece less_equal(Expression node) {
    const Expression left = node->operand(0);
    const Expression right = node->operand(1);
    if (left->kind == Kind::kInteger) {
      return {inside(right, Binding::kSum) + " >= " + std::to_string(left->value), Binding::kComparison};
    }
    if (right->kind == Kind::kSum && right->value == -1) {
      return {inside(left, Binding::kSum) + " < " + sum(right, 1).text, Binding::kComparison};
    }
    return comparison(node, " <= ");
  }

  Piece list(Expression node, const char* separator, Binding binding) {
    std::string all;
    for (const Term& term : node->terms()) {
      if (!all.empty()) all += separator;
      all += inside(term.node, next(binding));
    }
    return {all, binding};
  }
  Piece call(const char* function, Expression node) {
    std::string all;
    for (const Term& term : node->terms()) {
      if (!all.empty()) all += ", ";
      all += write(term.node).text;
    }
    return {std::string(function) + "(" + all + ")", Binding::kAtom};
  }

  Piece product(Expression node) {
    std::string all;
    for (const Term& term : node->terms()) {
      if (!all.empty()) all += "*";
      if (term.factor == 1) {
        all += inside(term.node, next(Binding::kProduct));
      } else {
        all += inside(term.node, Binding::kAtom) + "**" + std::to_string(term.factor);
      }
    }
    const bool one = node->count == 1;
    return {all, one ? Binding::kPower : Binding::kProduct};
  }

  // Terms with a negative factor come after the others, the constant last. `more` is added to the constant.
  Piece sum(Expression node, int64_t more) {
    std::string all;
    size_t parts = 0;
    for (const bool negative : {false, true}) {
      for (const Term& term : node->terms()) {
        if ((term.factor < 0) != negative) continue;
        const uint64_t factor =
            term.factor < 0 ? uint64_t{0} - static_cast<uint64_t>(term.factor) : static_cast<uint64_t>(term.factor);
        all += parts++ == 0 ? (negative ? "-" : "") : (negative ? " - " : " + ");
        if (factor != 1) {
          all += std::to_string(factor) + "*" + inside(term.node, next(Binding::kProduct));
        } else {
          all += inside(term.node, negative && parts == 1 ? Binding::kPower : Binding::kProduct);
        }
      }
    }
    const int64_t constant = node->value + more;
    if (constant != 0) {
      parts++;
      all += constant > 0 ? " + " + std::to_string(constant) : " - " + std::to_string(constant).substr(1);
    }
    return {all, parts > 1 ? Binding::kSum : Binding::kProduct};
  }

  const SymbolNames& names_;
};

}  // namespace

std::string text(Expression expression, const SymbolNames& names) { return Writer(names).write(expression).text; }

std::string text(Expression expression) {
  return text(expression, [](size_t number) { return "s" + std::to_string(number); });
}

}  // namespace alternator::shapes
