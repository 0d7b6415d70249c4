// Unbacked symbols: the result of .item() on a tensor whose value is not known while tracing.
//
// In a trace such a symbol is an object of one of the types here. Its class appears to be int, float or, for a
// comparison of two of them, bool. It has no value: arithmetic on it is recorded, and every other operation that could
// read the value is refused. Native code may read the digits of an int subclass directly, so the interpreter must not
// pass one to code that it does not know; the digits exceed a machine word and a double.
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
// `digits`: what native code reads that does not know of symbols; null: what it cannot use.
Ref make_symbol(PyTypeObject* cls, Ref digits = {});

// The behavior of the slots: set by the tracer.
struct SymbolHooks {
  // Applies `function` of the module `operator` to one or two scalars, one of them a symbol (right may be null).
  PyObject* (*operate)(const char* function, PyObject* left, PyObject* right) noexcept;
  // The same where only backed symbols have an expression. Null without an exception: there is none, and all operands
  // are plain numbers now, unless one is an unbacked symbol.
  PyObject* (*compute)(const char* function, PyObject* left, PyObject* right) noexcept;
  // Applies a comparison.
  PyObject* (*compare)(PyObject* left, PyObject* right, int operation) noexcept;
  // The value would be read: sets an exception.
  void (*refuse)(const char* what) noexcept;
  // Makes a plain number of a backed symbol (fake/backed_symbols.h). False: it is an unbacked one.
  bool (*specialize)(PyObject* symbol) noexcept;
  // Whether a backed symbol is not 0, in all calls that use the trace.
  bool (*may_divide)(PyObject* divisor) noexcept;
};
extern SymbolHooks symbol_hooks;

int init_symbols();

}  // namespace alternator::fake
