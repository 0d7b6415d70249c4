// Operators on tensors, as functions of the module `operator`: what a reader of a graph expects to see.
#pragma once

#include "py/error.h"

namespace alternator::trace {

// Null: the operands are not just tensors, or tensors and Python scalars; another class may override the operator.
Borrowed operator_on_tensors(unaryfunc operation, Borrowed operand);
Borrowed operator_on_tensors(binaryfunc operation, Borrowed left, Borrowed right);
Borrowed comparison_of_tensors(int operation, Borrowed left, Borrowed right);

}  // namespace alternator::trace
