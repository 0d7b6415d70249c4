// TODO
#pragma once
#include <string>
#include "py/error.h"

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

Ref operate(Tracer& t, binaryfunc operation, Borrowed left, Borrowed right);
Ref operate(Tracer& t, Borrowed function, PyObject* const* arguments, size_t count);
Ref compare_numbers(Tracer& t, Borrowed left, Borrowed right, int operation);
bool may_hold_symbol(const Tracer& t, Borrowed value);
bool has_native_length(Borrowed object);  // no user code computes its length
void check_comparison(Tracer& t, Borrowed left, Borrowed right);
// One operand is a tensor, and neither has user code.
bool is_torchs_operation(Borrowed left, Borrowed right);
void check_symbols(Tracer& t, Borrowed callable, const std::string& name, PyObject* const* arguments, size_t count);
void check_symbols(Tracer& t, PyTypeObject* type, PyTypeObject* base, PyObject* const* arguments, size_t count);
bool expect(Tracer& t, Borrowed value);
Ref extreme_of_numbers(Tracer& t, const std::string& name, PyObject* const* arguments, size_t count);
Ref convert_number(Tracer& t, PyTypeObject* type, Borrowed number);
Ref convert_tensor(Tracer& t, PyTypeObject* type, Borrowed tensor);
Ref list_of_numbers(Tracer& t, Borrowed tensor);

}  // namespace alternator::trace
