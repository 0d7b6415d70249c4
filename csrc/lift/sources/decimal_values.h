// The module decimal: immutable values, and the contexts that they are computed in.
#pragma once

#include "py/error.h"

namespace alternator::lift {

struct DecimalTypes {
  PyTypeObject *decimal, *context;
  // Functions that get and set the context of the thread.
  PyObject *get, *set, *local;
  // Contexts that setcontext() copies instead of setting; the first is the default of Context().
  PyObject* templates[3];
};
// Null: the decimal module of this CPython has an unknown structure.
const DecimalTypes* decimal_types();

// Exactly a decimal.Decimal, or a decimal.Context.
inline bool is_decimal(PyObject* object) {
  const DecimalTypes* types = decimal_types();
  return types != nullptr && Py_TYPE(object) == types->decimal;
}
inline bool is_decimal_context(PyObject* object) {
  const DecimalTypes* types = decimal_types();
  return types != nullptr && Py_TYPE(object) == types->context;
}
// Such an object, or a class of such: code that has it may compute with decimals.
bool is_about_decimals(PyObject* object);

// The parts of a context: its settings, in the order of its constructor's arguments, then its flags and its traps as
// ints.
Ref parts_of_context(Borrowed context);
inline constexpr Py_ssize_t kFlagsPart = 6, kTrapsPart = 7;
inline constexpr const char* kContextSettings[] = {"prec", "rounding", "Emin", "Emax", "capitals", "clamp"};
// A builtin of ours: sets the flags and traps of a context from a tuple.
PyObject* signal_setter();

}  // namespace alternator::lift
