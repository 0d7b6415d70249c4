// Numbers that only a run knows: what .item() gives of a tensor whose value is not known while tracing.
//
// In a trace such a number is an object of one of the types here. For all who ask for its class it is an int, a float
// or, where two of them were compared, a bool. It has no value: arithmetic on it is recorded, and everything else that
// could look at the value is refused. Native code may read the digits of a subclass of int without asking, so the
// interpreter must not hand one to code that it does not know; the digits are more than a machine word or a double
// holds.
#pragma once

#include "py/error.h"

namespace alternator::fake {

extern PyTypeObject int_symbol_type, float_symbol_type, bool_symbol_type;

inline bool is_truth_symbol(Borrowed object) { return Py_IS_TYPE(object.get(), &bool_symbol_type); }
inline bool is_symbol(Borrowed object) {
  return Py_IS_TYPE(object.get(), &int_symbol_type) || Py_IS_TYPE(object.get(), &float_symbol_type) ||
         is_truth_symbol(object);
}
// int, float or bool.
inline PyTypeObject* class_of_symbol(Borrowed symbol) {
  if (is_truth_symbol(symbol)) return &PyBool_Type;
  return Py_IS_TYPE(symbol.get(), &int_symbol_type) ? &PyLong_Type : &PyFloat_Type;
}
Ref make_symbol(PyTypeObject* cls);

// What the slots do: set by whoever traces.
struct SymbolHooks {
  // Carries `function` of the module `operator` out on one or two numbers, one of them a symbol (right may be null).
  PyObject* (*operate)(const char* function, PyObject* left, PyObject* right) noexcept;
  // Carries a comparison out.
  PyObject* (*compare)(PyObject* left, PyObject* right, int operation) noexcept;
  // Something looks at the value: sets an exception.
  void (*refuse)(const char* what) noexcept;
};
extern SymbolHooks symbol_hooks;

int init_symbols();

}  // namespace alternator::fake
