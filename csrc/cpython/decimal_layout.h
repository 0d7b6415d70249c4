// The memory layout of the _decimal module's Decimal and Context.
#pragma once

#include "py/ref.h"

#include <cstdint>

namespace alternator::cpython {

// Whether instances of these classes, decimal.Decimal and decimal.Context, have the layout that is known here.
bool has_known_decimals(PyTypeObject* decimal, PyTypeObject* context);
// The same sign, digits and exponent, or the same kind of NaN or infinity: 1.0 is not 1.00. Both must be exact
// instances of that class.
bool same_decimal(PyObject* a, PyObject* b);
// An instance of that class or of a subclass.
bool is_decimal_nan(PyObject* decimal);

// The flags and traps of a context, as bits. One signal may consist of several bits: which of them are set shows in the
// context's repr and in comparisons of its flags.
struct Signals {
  uint32_t flags, traps;
};
Signals signals_of(PyObject* context);
void set_signals(PyObject* context, Signals signals);

}  // namespace alternator::cpython
