// numpy scalars, and objects with __index__: operands of operators, and arguments of torch calls.
#pragma once

#include "py/ref.h"

#include <string>
#include <vector>

namespace alternator::trace {

class Tracer;

// The operands of an operator, one of them a numpy scalar: next to a tensor it acts as a Python scalar. Returns the
// converted scalar, which must outlive the operands.
Ref check_numbers(Tracer& t, Borrowed* left, Borrowed* right);
// The Python scalar that torch converts a numpy scalar to; null: there is none in the value.
Ref number_for_torch(Tracer& t, Borrowed value, int depth = 0);
// The same for all arguments of a call; false: none is converted.
bool use_numbers(Tracer& t, PyObject* const* arguments, size_t count, const std::string& name,
                 std::vector<PyObject*>* given, std::vector<Ref>* numbers);

}  // namespace alternator::trace
