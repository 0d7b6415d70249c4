#include "fake/unbacked_symbol.h"

#include "fake/numpy_scalar_input.h"

#include <limits>
#include <string>

namespace alternator::fake {

PyTypeObject int_symbol_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject float_symbol_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject bool_symbol_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
SymbolHooks symbol_hooks = {};
PyTypeObject* numpy_scalar_input_type = nullptr;

namespace {

PyObject* refuse(const char* what) {
  if (symbol_hooks.refuse != nullptr) symbol_hooks.refuse(what);
  if (!PyErr_Occurred())
    PyErr_SetString(PyExc_SystemError, "alternator: an unbacked symbol was used outside of its trace");
  return nullptr;
}

// Whether the symbol is a plain number now: its slots are those of int or float.
bool is_specialized(PyObject* symbol) { return symbol_hooks.specialize != nullptr && symbol_hooks.specialize(symbol); }

// Of two operands: no unbacked symbol is among them any more.
bool are_specialized(PyObject* left, PyObject* right) {
  return (!is_symbol(left) || is_specialized(left)) && (!is_symbol(right) || is_specialized(right));
}

bool is_number(PyObject* object) {
  return PyLong_CheckExact(object) || PyFloat_CheckExact(object) || (is_symbol(object) && !is_truth_symbol(object));
}

// Division by it cannot raise ZeroDivisionError.
bool is_nonzero_number(PyObject* object) {
  if (PyFloat_CheckExact(object)) return PyFloat_AS_DOUBLE(object) != 0.0;
  return PyLong_CheckExact(object) && _PyLong_Sign(object) != 0;
}

// Division by it raises or not as in this call: that is guarded.
bool may_divide(PyObject* divisor) {
  return is_symbol(divisor) && symbol_hooks.may_divide != nullptr && symbol_hooks.may_divide(divisor);
}

PyObject* operate(const char* function, PyObject* left, PyObject* right) {
  if (symbol_hooks.operate == nullptr) return refuse(function);
  return symbol_hooks.operate(function, left, right);
}

template <const char* kFunction>
PyObject* binary(PyObject* left, PyObject* right) {
  if (!is_number(left) || !is_number(right)) Py_RETURN_NOTIMPLEMENTED;  // a tensor's reflected operator handles it
  return operate(kFunction, left, right);
}
// Where eager may raise, the result is unknown.
template <const char* kFunction, PyObject* (*kOperation)(PyObject*, PyObject*)>
PyObject* divide(PyObject* left, PyObject* right) {
  if (!is_number(left) || !is_number(right)) Py_RETURN_NOTIMPLEMENTED;
  if (!is_nonzero_number(right) && !may_divide(right)) {
    if (!is_symbol(right) && are_specialized(left, right)) return kOperation(left, right);  // ZeroDivisionError
    return refuse("a division by an unbacked symbol");
  }
  return operate(kFunction, left, right);
}
template <const char* kFunction>
PyObject* unary(PyObject* operand) {
  return operate(kFunction, operand, nullptr);
}

constexpr char kAdd[] = "add", kSub[] = "sub", kMul[] = "mul", kFloorDiv[] = "floordiv", kMod[] = "mod",
               kTrueDiv[] = "truediv", kDivmod[] = "divmod", kNeg[] = "neg";

PyObject* compare(PyObject* left, PyObject* right, int operation) {
  if (!is_number(left) || !is_number(right)) {
    if (!PyLong_Check(left) && !PyFloat_Check(left)) Py_RETURN_NOTIMPLEMENTED;
    if (!PyLong_Check(right) && !PyFloat_Check(right)) Py_RETURN_NOTIMPLEMENTED;
    if (are_specialized(left, right)) return PyObject_RichCompare(left, right, operation);
    return refuse("a comparison");
  }
  if (symbol_hooks.compare == nullptr) return refuse("a comparison");
  return symbol_hooks.compare(left, right, operation);
}

PyObject* self(PyObject* symbol) { return Py_NewRef(symbol); }

// What has no expression: done with the value of a symbol that is known in each call.
template <PyObject* (*kOperation)(PyObject*)>
PyObject* one(PyObject* symbol) {
  return is_specialized(symbol) ? kOperation(symbol) : refuse("a number");
}
template <PyObject* (*kOperation)(PyObject*, PyObject*)>
PyObject* two(PyObject* left, PyObject* right) {
  if (!is_number(left) || !is_number(right)) Py_RETURN_NOTIMPLEMENTED;
  return are_specialized(left, right) ? kOperation(left, right) : refuse("a number");
}
// What has an expression only over symbols that are known in each call.
PyObject* computed(const char* function, PyObject* left, PyObject* right) {
  return symbol_hooks.compute != nullptr ? symbol_hooks.compute(function, left, right) : nullptr;
}
template <const char* kFunction, PyObject* (*kOperation)(PyObject*, PyObject*)>
PyObject* two_computed(PyObject* left, PyObject* right) {
  if (!is_number(left) || !is_number(right)) Py_RETURN_NOTIMPLEMENTED;
  if (is_nonzero_number(right) || may_divide(right)) {
    PyObject* result = computed(kFunction, left, right);
    if (result != nullptr || PyErr_Occurred() != nullptr) return result;
  }
  return are_specialized(left, right) ? kOperation(left, right) : refuse("a number");
}
PyObject* power(PyObject* base, PyObject* exponent, PyObject* modulus) {
  if (!is_number(base) || !is_number(exponent)) Py_RETURN_NOTIMPLEMENTED;
  if (modulus == Py_None) {
    PyObject* result = computed("pow", base, exponent);
    if (result != nullptr || PyErr_Occurred() != nullptr) return result;
  }
  if (!are_specialized(base, exponent)) return refuse("a number");
  return is_symbol(modulus) && !is_specialized(modulus) ? refuse("a number") : PyNumber_Power(base, exponent, modulus);
}
PyObject* absolute(PyObject* symbol) {
  return symbol_hooks.operate != nullptr ? symbol_hooks.operate("abs", symbol, nullptr) : refuse("a number");
}

void fill(PyTypeObject& type, PyNumberMethods& numbers, PyTypeObject* base, bool is_float) {
  numbers.nb_add = binary<kAdd>;
  numbers.nb_subtract = binary<kSub>;
  numbers.nb_multiply = binary<kMul>;
  numbers.nb_true_divide = divide<kTrueDiv, PyNumber_TrueDivide>;
  numbers.nb_floor_divide = is_float ? static_cast<binaryfunc>(two_computed<kFloorDiv, PyNumber_FloorDivide>)
                                     : divide<kFloorDiv, PyNumber_FloorDivide>;
  numbers.nb_remainder =
      is_float ? static_cast<binaryfunc>(two_computed<kMod, PyNumber_Remainder>) : divide<kMod, PyNumber_Remainder>;
  numbers.nb_divmod = two_computed<kDivmod, PyNumber_Divmod>;
  numbers.nb_lshift = two<PyNumber_Lshift>;
  numbers.nb_rshift = two<PyNumber_Rshift>;
  numbers.nb_and = two<PyNumber_And>;
  numbers.nb_xor = two<PyNumber_Xor>;
  numbers.nb_or = two<PyNumber_Or>;
  numbers.nb_power = power;
  numbers.nb_negative = unary<kNeg>;
  numbers.nb_positive = self;
  numbers.nb_absolute = absolute;
  if (!is_float) {
    numbers.nb_invert = one<PyNumber_Invert>;
    numbers.nb_index = one<PyNumber_Index>;
  }
  numbers.nb_int = one<PyNumber_Long>;
  numbers.nb_float = one<PyNumber_Float>;
  numbers.nb_bool = [](PyObject* symbol) {
    return is_specialized(symbol) ? PyObject_IsTrue(symbol) : (refuse("a truth test"), -1);
  };
  type.tp_name = base->tp_name;
  type.tp_base = base;
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  type.tp_as_number = &numbers;
  type.tp_hash = [](PyObject* symbol) -> Py_hash_t {
    return is_specialized(symbol) ? PyObject_Hash(symbol) : (refuse("a hash"), -1);
  };
  type.tp_richcompare = compare;
  type.tp_repr = [](PyObject* symbol) {
    return is_specialized(symbol) ? PyObject_Repr(symbol) : refuse("a string conversion");
  };
  type.tp_str = [](PyObject* symbol) {
    return is_specialized(symbol) ? PyObject_Str(symbol) : refuse("a string conversion");
  };
}

}  // namespace

int init_symbols() {
  static PyNumberMethods int_numbers, float_numbers;
  fill(int_symbol_type, int_numbers, &PyLong_Type, false);
  fill(float_symbol_type, float_numbers, &PyFloat_Type, true);
  // bool cannot be subclassed. Arithmetic on a symbolic bool is not supported.
  static PyNumberMethods bool_numbers;
  fill(bool_symbol_type, bool_numbers, &PyLong_Type, false);
  bool_symbol_type.tp_name = PyBool_Type.tp_name;
  const binaryfunc refused = [](PyObject*, PyObject*) { return refuse("a truth value"); };
  bool_numbers.nb_add = bool_numbers.nb_subtract = bool_numbers.nb_multiply = bool_numbers.nb_true_divide = refused;
  bool_numbers.nb_floor_divide = bool_numbers.nb_remainder = refused;
  bool_numbers.nb_and = bool_numbers.nb_or = bool_numbers.nb_xor = refused;
  bool_numbers.nb_negative = bool_numbers.nb_positive = [](PyObject*) { return refuse("a truth value"); };
  for (PyTypeObject* type : {&int_symbol_type, &float_symbol_type, &bool_symbol_type}) {
    if (PyType_Ready(type) < 0) return -1;
  }
  return 0;
}

Ref make_numpy_scalar_input(Borrowed number) {
  Ref made = checked(numpy_scalar_input_type->tp_alloc(numpy_scalar_input_type, 0));
  made.as<NumpyScalarInput>()->example =
      checked(PyObject_CallFunction(reinterpret_cast<PyObject*>(number.type()), "i", 1)).release();
  return made;
}

Ref make_symbol(PyTypeObject* cls, Ref digits) {
  Ref value = std::move(digits);
  if (!value && cls == &PyFloat_Type) {
    value = checked(PyFloat_FromDouble(std::numeric_limits<double>::quiet_NaN()));
  } else if (!value) {
    // Too large for any machine word and any double: reading it natively raises an error.
    const std::string text = "1" + std::string(400, '0');
    value = checked(PyLong_FromString(text.c_str(), nullptr, 10));
  }
  Ref arguments = checked(PyTuple_Pack(1, value.get()));
  PyTypeObject* type = cls == &PyFloat_Type  ? &float_symbol_type
                       : cls == &PyBool_Type ? &bool_symbol_type
                                             : &int_symbol_type;
  return checked(type->tp_base->tp_new(type, arguments.get(), nullptr));
}

}  // namespace alternator::fake
