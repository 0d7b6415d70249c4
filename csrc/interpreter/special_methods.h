// Which special method of which operand an operator asks, in which order.
#pragma once

#include "cpython/version.h"

#include <vector>

namespace alternator {

// The attribute of a type (and its bases), as the interpreter looks special methods up; borrowed, may be null.
PyObject* type_attribute(PyTypeObject* type, const char* name);

struct Attempt {
  PyObject* method;    // borrowed; what the type has under the name
  PyObject* self;      // borrowed
  PyObject* argument;  // borrowed
};
// What `left OP right` asks, in order; stops where one does not answer NotImplemented.
std::vector<Attempt> operator_attempts(int oparg, PyObject* left, PyObject* right);
std::vector<Attempt> comparison_attempts(int comparison, PyObject* left, PyObject* right);

// Asks the attempts after number `asked`. Null with an exception: an error, or nobody answered.
Ref rest_of_operator(int oparg, PyObject* left, PyObject* right, int asked);
Ref rest_of_comparison(int comparison, PyObject* left, PyObject* right, int asked);

}  // namespace alternator
