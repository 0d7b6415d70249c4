// Unbacked symbols: operators, comparisons and conversions of them are recorded; native code may not read their values.
#pragma once

#include "py/error.h"
#include "trace/calls/native_flags.h"

namespace alternator::trace {

class Tracer;

Ref operate(Tracer& t, binaryfunc operation, Borrowed left, Borrowed right);
Ref operate(Tracer& t, Borrowed function, PyObject* const* arguments, size_t count);
Ref compare_numbers(Tracer& t, Borrowed left, Borrowed right, int operation);

// Whether a symbol may be found in the value.
bool may_hold_symbol(const Tracer& t, Borrowed value);
// The same for unbacked ones and deferred strings. Backed ones are plain numbers from here on.
bool may_hold_unbacked(Tracer& t, Borrowed value);
bool has_native_length(Borrowed object);  // no user code computes its length
void check_comparison(Tracer& t, Borrowed left, Borrowed right);
// Of two numbers, or two rows of integers, with a symbol among them: for compare_numbers().
bool compares_symbols(const Tracer& t, Borrowed left, Borrowed right);
// One operand is a tensor, and neither has user code.
bool is_torchs_operation(Borrowed left, Borrowed right);
// To be called before native code receives a symbol whose value it might read.
void check_symbols(Tracer& t, Borrowed callable, NativeFlags flags, PyObject* const* arguments, size_t count);
// The same for the constructor of a type with the layout of `base`.
void check_symbols(Tracer& t, PyTypeObject* type, PyTypeObject* base, PyObject* const* arguments, size_t count);

bool expect(Tracer& t, Borrowed value);
Ref convert_number(Tracer& t, PyTypeObject* type, Borrowed number);
Ref convert_tensor(Tracer& t, PyTypeObject* type, Borrowed tensor);
Ref list_of_numbers(Tracer& t, Borrowed tensor);

}  // namespace alternator::trace
