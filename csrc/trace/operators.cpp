#include "trace/operators.h"

#include "graph/torch_types.h"
#include "interpreter/binary_operations.h"
#include "py/lasting.h"

namespace alternator::trace {
namespace {

struct Operators {
  Ref binary[std::size(kBinaryOperations)];
  Ref negative = named("neg"), positive = named("pos"), invert = named("invert");
  Ref comparisons[6] = {named("lt"), named("le"), named("eq"), named("ne"), named("gt"), named("ge")};  // Py_LT ...
  PyTypeObject* parameter =
      reinterpret_cast<PyTypeObject*>(graph::torch_name("torch.nn", "Parameter").release());  // lives as long as torch

  Operators() {
    for (size_t i = 0; i < std::size(kBinaryOperations); i++) binary[i] = named(kBinaryOperations[i].name);
  }
  static Ref named(const char* name) { return graph::torch_name("operator", name); }
};

const Operators& operators() {
  static constinit Lasting<Operators> lasting;
  return lasting.get();
}

bool is_tensor(Borrowed object) {
  return object.type() == graph::torch_types().tensor || object.type() == operators().parameter;
}

bool is_number(Borrowed object) {
  PyTypeObject* type = object.type();
  return type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type || type == &PyComplex_Type;
}

bool are_tensors(Borrowed left, Borrowed right) {
  return is_tensor(left) ? is_tensor(right) || is_number(right) : is_number(left) && is_tensor(right);
}

}  // namespace

Borrowed operator_on_tensors(unaryfunc operation, Borrowed operand) {
  if (!is_tensor(operand)) return {};
  if (operation == PyNumber_Negative) return operators().negative;
  if (operation == PyNumber_Positive) return operators().positive;
  if (operation == PyNumber_Invert) return operators().invert;
  return {};
}

Borrowed operator_on_tensors(binaryfunc operation, Borrowed left, Borrowed right) {
  if (!are_tensors(left, right)) return {};
  for (size_t i = 0; i < std::size(kBinaryOperations); i++) {
    if (kBinaryOperations[i].function == operation) return operators().binary[i];
  }
  return {};
}

Borrowed comparison_of_tensors(int operation, Borrowed left, Borrowed right) {
  return are_tensors(left, right) ? Borrowed(operators().comparisons[operation]) : Borrowed();
}

}  // namespace alternator::trace
