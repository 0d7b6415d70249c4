// Which special methods of which operand an operator calls, in which order.
#pragma once

#include "cpython/version.h"

#include <vector>

namespace alternator {

// The attribute of a type (and its bases), as the interpreter looks up special methods; borrowed, may be null.
PyObject* type_attribute(PyTypeObject* type, const char* name);

struct Attempt {
  PyObject* method;    // borrowed; the type's attribute
  PyObject* self;      // borrowed
  PyObject* argument;  // borrowed
};
// The methods that `left OP right` tries, in order, until one does not return NotImplemented.
std::vector<Attempt> operator_attempts(int oparg, PyObject* left, PyObject* right);
std::vector<Attempt> comparison_attempts(int comparison, PyObject* left, PyObject* right);

// Tries the attempts after number `asked`. Null with an exception: one raised, or all returned NotImplemented.
Ref rest_of_operator(int oparg, PyObject* left, PyObject* right, int asked);
Ref rest_of_comparison(int comparison, PyObject* left, PyObject* right, int asked);

}  // namespace alternator
