// A numpy scalar input, and the scalars computed from it: inputs and results of nodes that call numpy itself. In a
// trace it is an object that refuses every operation: the trace is then restarted with the scalar specialized
// (lift/lifting/numpy_scalar_inputs.h).
#pragma once

#include "py/error.h"

namespace alternator::fake {

struct NumpyScalarInput {
  PyObject_HEAD PyObject* example;  // a numpy scalar of the same class; null: another object of this type
};
extern PyTypeObject* numpy_scalar_input_type;  // set by the tracer

inline bool is_numpy_scalar_input(Borrowed object) {
  return Py_IS_TYPE(object.get(), numpy_scalar_input_type) && object.as<NumpyScalarInput>()->example != nullptr;
}
inline Borrowed example_of(Borrowed number) { return number.as<NumpyScalarInput>()->example; }

// `number`: a numpy scalar; only its class matters.
Ref make_numpy_scalar_input(Borrowed number);

}  // namespace alternator::fake
