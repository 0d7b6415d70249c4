// A number of numpy's that is handed over, and what is computed of it, where only a run knows them: inputs and results
// of nodes that call numpy itself. In a trace it is an object that refuses whatever is asked of it: the trace is then
// made once more with the number as it is (lift/lifting/numpy_scalar_inputs.h).
#pragma once

#include "py/error.h"

namespace alternator::fake {

struct NumpyScalarInput {
  PyObject_HEAD PyObject* example;  // a number of numpy's, of the same class; null: no such object, but one of its type
};
extern PyTypeObject* numpy_scalar_input_type;  // set by whoever traces

inline bool is_numpy_scalar_input(Borrowed object) {
  return Py_IS_TYPE(object.get(), numpy_scalar_input_type) && object.as<NumpyScalarInput>()->example != nullptr;
}
inline Borrowed example_of(Borrowed number) { return number.as<NumpyScalarInput>()->example; }

// `number`: one of numpy's; only its class matters.
Ref make_numpy_scalar_input(Borrowed number);

}  // namespace alternator::fake
