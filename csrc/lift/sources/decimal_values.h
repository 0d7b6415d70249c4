// The module decimal: numbers that never change, and the contexts that they are computed in.
#pragma once

#include "py/error.h"

namespace alternator::lift {

struct DecimalTypes {
  PyTypeObject *decimal, *context;
  // What sets and gives the context of the thread.
  PyObject *get, *set, *local;
  // What setcontext() never sets itself, but a copy of it; the first is what a Context() is made after.
  PyObject* templates[3];
};
// Null: this CPython has them in another way than is known here.
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
// Such an object, or a class of such: whoever has it may compute.
bool is_about_decimals(PyObject* object);

// What a context is made of: its settings, in the order of its class's arguments, then its flags and its traps as
// numbers.
Ref parts_of_context(Borrowed context);
inline constexpr Py_ssize_t kFlagsPart = 6, kTrapsPart = 7;
inline constexpr const char* kContextSettings[] = {"prec", "rounding", "Emin", "Emax", "capitals", "clamp"};
// A builtin of our own: gives a context the flags and traps of a tuple.
PyObject* signal_setter();

}  // namespace alternator::lift
