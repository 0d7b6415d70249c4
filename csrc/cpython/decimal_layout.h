// Decimals of the module _decimal, and their contexts: what they are made of.
#pragma once

#include "py/ref.h"

#include <cstdint>

namespace alternator::cpython {

// Whether instances of these classes, decimal.Decimal and decimal.Context, are laid out as is known here.
bool has_known_decimals(PyTypeObject* decimal, PyTypeObject* context);
// The same sign, digits and exponent, or the same kind of NaN or infinity: 1.0 is not 1.00. Two instances of that very
// class.
bool same_decimal(PyObject* a, PyObject* b);
// An instance of that class, or of one over it.
bool is_decimal_nan(PyObject* decimal);

// The flags and the traps of a context, bit by bit. Several of them are one signal: which ones are set shows in the
// context's text, and where its flags are compared.
struct Signals {
  uint32_t flags, traps;
};
Signals signals_of(PyObject* context);
void set_signals(PyObject* context, Signals signals);

}  // namespace alternator::cpython
