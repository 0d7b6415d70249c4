#include "trace/opcodes/tensor_operators.h"

#include "fake/unbacked_symbol.h"
#include "graph/record/torch_types.h"
#include "interpreter/binary_operations.h"
#include "py/lasting.h"

#include <string>

namespace alternator::trace {
namespace {

struct Operators {
  Ref binary[std::size(kBinaryOperations)];
  Ref negative = named("neg"), positive = named("pos"), invert = named("invert");
  Ref comparisons[6] = {named("lt"), named("le"), named("eq"), named("ne"), named("gt"), named("ge")};  // Py_LT ...
  PyTypeObject* parameter =
      reinterpret_cast<PyTypeObject*>(graph::torch_name("torch.nn", "Parameter").release());  // lives as long as torch

  Operators() {
    Borrowed tensor = reinterpret_cast<PyObject*>(graph::torch_types().tensor);
    for (size_t i = 0; i < std::size(kBinaryOperations); i++) {
      const std::string method = std::string("__") + kBinaryOperations[i].name + "__";
      // `a @= b` on tensors creates a new tensor: it is in place in name only.
      const bool has_own = i < kFirstInPlace || PyObject_HasAttrString(tensor.get(), method.c_str());
      binary[i] = has_own ? named(kBinaryOperations[i].name) : Ref::share(binary[i - kFirstInPlace]);
    }
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
  return type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type || type == &PyComplex_Type ||
         fake::is_symbol(object);
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
    if (kBinaryOperations[i].function != operation) continue;
    // An operator that is in place in name only must not be recorded as such: the code of an FX graph assigns to the
    // left operand.
    const bool makes_new = i >= kFirstInPlace && !is_tensor(left);
    return operators().binary[makes_new ? i - kFirstInPlace : i];
  }
  return {};
}

Borrowed comparison_of_tensors(int operation, Borrowed left, Borrowed right) {
  return are_tensors(left, right) ? Borrowed(operators().comparisons[operation]) : Borrowed();
}

}  // namespace alternator::trace
