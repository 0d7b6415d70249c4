#include "fake/unbacked_sizes.h"

#include "py/error.h"
#include "py/import.h"
#include "py/lasting.h"
#include "shapes/evaluation.h"

#include <torch/csrc/utils/python_symnode.h>

namespace alternator::fake {

using shapes::Expression;
using shapes::Kind;
using shapes::Term;

namespace {

// The classes of sympy's expressions that have a counterpart.
struct SympyTypes {
  Ref symbol = of("sympy", "Symbol"), integer = of("sympy", "Integer"), add = of("sympy", "Add"),
      mul = of("sympy", "Mul"), pow = of("sympy", "Pow"), max = of("torch.utils._sympy.functions", "Max"),
      min = of("torch.utils._sympy.functions", "Min"), floor_div = of("torch.utils._sympy.functions", "FloorDiv"),
      mod = of("torch.utils._sympy.functions", "Mod"), python_mod = of("torch.utils._sympy.functions", "PythonMod");

  static Ref of(const char* module, const char* name) {
    return checked(PyObject_GetAttrString(import_module(module).get(), name));
  }
};

const SympyTypes& sympy_types() {
  static constinit Lasting<SympyTypes> types;
  return types.get();
}

std::optional<int64_t> as_int64(Borrowed integer) {
  Ref plain = checked(PyNumber_Long(integer.get()));
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(plain.get(), &overflow);
  return overflow == 0 ? std::optional<int64_t>(value) : std::nullopt;
}

}  // namespace

Expression UnbackedSizes::of(const c10::SymInt& number) {
  if (!number.is_heap_allocated()) return environment.integer(number.as_int_unchecked());
  const c10::SymNode node = number.toSymNode();
  if (const auto known = by_node_.find(node.get()); known != by_node_.end()) return known->second;
  Expression expression = nullptr;
  if (const auto* pythons = dynamic_cast<const torch::impl::PythonSymNodeImpl*>(node.get())) {
    Ref object = Ref::share(const_cast<torch::impl::PythonSymNodeImpl*>(pythons)->getPyObj().ptr());
    if (const auto known = by_object_.find(object.get()); known != by_object_.end()) {
      expression = known->second;
    } else {
      expression = translate(checked(PyObject_GetAttrString(object.get(), "expr")));
      by_object_.emplace(object.get(), expression);
      objects_.push_back(std::move(object));
    }
  } else if (const std::optional<int64_t> constant = number.maybe_as_int()) {
    return environment.integer(*constant);
  }
  by_node_.emplace(node.get(), expression);
  nodes_.push_back(node);
  if (expression != nullptr) numbers_.emplace(expression, number);
  return expression;
}

Expression UnbackedSizes::translate(Borrowed sympy) {
  if (!by_sympy_) by_sympy_ = checked(PyDict_New());
  PyObject* position = PyDict_GetItemWithError(by_sympy_.get(), sympy.get());
  if (position != nullptr) return expressions_[PyLong_AsSize_t(position)];
  if (PyErr_Occurred() != nullptr) throw PyError();
  const Expression made = translate_now(sympy);
  Ref index = checked(PyLong_FromSize_t(expressions_.size()));
  expressions_.push_back(made);
  check_status(PyDict_SetItem(by_sympy_.get(), sympy.get(), index.get()));
  return made;
}

Expression UnbackedSizes::translate_now(Borrowed sympy) {
  const SympyTypes& types = sympy_types();
  const auto is = [&](const Ref& type) { return PyObject_TypeCheck(sympy.get(), type.as<PyTypeObject>()) != 0; };
  if (is(types.integer)) {
    const std::optional<int64_t> value = as_int64(sympy);
    return value ? environment.integer(*value) : nullptr;
  }
  // Nothing is known of it: a fact that torch learns later could not be taken back.
  if (is(types.symbol)) return environment.add_symbol(std::nullopt);
  if (is(types.add)) return fold(sympy, Kind::kSum);
  if (is(types.mul)) return fold(sympy, Kind::kProduct);
  if (is(types.max)) return fold(sympy, Kind::kMax);
  if (is(types.min)) return fold(sympy, Kind::kMin);
  if (is(types.floor_div)) return fold(sympy, Kind::kFloorDiv);
  if (is(types.mod) || is(types.python_mod)) return fold(sympy, Kind::kMod);
  if (is(types.pow)) return fold(sympy, Kind::kPow);
  return nullptr;
}

Expression UnbackedSizes::fold(Borrowed sympy, Kind kind) {
  Ref operands = checked(PyObject_GetAttrString(sympy.get(), "args"));
  Expression result = nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(operands.get()); i++) {
    const Expression operand = translate(PyTuple_GET_ITEM(operands.get(), i));
    if (operand == nullptr) return nullptr;
    if (i == 0) {
      result = operand;
      continue;
    }
    switch (kind) {
      case Kind::kSum:
        result = environment.add(result, operand);
        break;
      case Kind::kProduct:
        result = environment.multiply(result, operand);
        break;
      case Kind::kMax:
        result = environment.maximum(result, operand);
        break;
      case Kind::kMin:
        result = environment.minimum(result, operand);
        break;
      case Kind::kFloorDiv:
        result = environment.floor_divide(result, operand);
        break;
      case Kind::kMod:
        result = environment.modulo(result, operand);
        break;
      default:
        result = operand->kind == Kind::kInteger ? environment.power(result, operand->value) : nullptr;
    }
  }
  return result;
}

std::optional<c10::SymInt> UnbackedSizes::number(Expression expression) {
  if (expression->kind == Kind::kInteger) return c10::SymInt(expression->value);
  const auto known = numbers_.find(expression);
  if (known != numbers_.end()) return known->second;
  std::optional<c10::SymInt> made = build(expression);
  if (!made) return made;
  // Torch may know more than the expression says: its number is that of another one then.
  (void)of(*made);
  numbers_[expression] = *made;
  return made;
}

std::optional<c10::SymInt> UnbackedSizes::build(Expression expression) {
  std::optional<c10::SymInt> result;
  for (const Term& term : expression->terms()) {
    const std::optional<c10::SymInt> operand = number(term.node);
    if (!operand) return std::nullopt;
    switch (expression->kind) {
      case Kind::kSum: {
        c10::SymInt scaled = term.factor == 1 ? *operand : *operand * term.factor;
        result = result ? *result + scaled : std::move(scaled);
        break;
      }
      case Kind::kProduct:
        for (int64_t i = 0; i < term.factor; i++) result = result ? *result * *operand : *operand;
        break;
      case Kind::kMax:
        result = result ? result->max(*operand) : *operand;
        break;
      case Kind::kMin:
        result = result ? result->min(*operand) : *operand;
        break;
      default:
        return std::nullopt;
    }
  }
  if (expression->kind == Kind::kSum && expression->value != 0 && result) result = *result + expression->value;
  return result;
}

std::optional<int64_t> UnbackedSizes::evaluate(Expression expression, std::span<const int64_t> values) {
  switch (expression->kind) {
    case Kind::kInteger:
      return expression->value;
    case Kind::kSymbol:
      return values[static_cast<size_t>(expression->value)];
    default:
      break;
  }
  const bool is_sum = expression->kind == Kind::kSum;
  std::optional<int64_t> result;
  if (is_sum) result = expression->value;
  if (expression->kind == Kind::kProduct) result = 1;
  for (const Term& term : expression->terms()) {
    const std::optional<int64_t> operand = evaluate(term.node, values);
    if (!operand) return std::nullopt;
    if (is_sum) {
      int64_t scaled = 0;
      if (!shapes::checked_multiply(*operand, term.factor, &scaled)) return std::nullopt;
      if (!shapes::checked_add(*result, scaled, &*result)) return std::nullopt;
    } else if (expression->kind == Kind::kProduct) {
      for (int64_t i = 0; i < term.factor; i++)
        if (!shapes::checked_multiply(*result, *operand, &*result)) return std::nullopt;
    } else if (!result) {
      result = operand;
    } else {
      const shapes::Value value = shapes::apply_binary(expression->kind, *result, *operand);
      if (!value.defined) return std::nullopt;
      result = value.number.integer;
    }
  }
  return result;
}

}  // namespace alternator::fake
