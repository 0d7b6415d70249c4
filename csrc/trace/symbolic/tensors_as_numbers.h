// Tensors passed where torch wants a scalar (torch/torch_calls.cpp).
#pragma once

#include "trace/core/tracer.h"

namespace alternator::trace {

// Records .item() of a tensor and returns its result.
Ref number_in(Tracer& tracer, PyObject* tensor);

// The index with the tensors in its slices replaced by their unbacked symbols, where scalars are captured. Null: there
// are none.
Ref slices_with_numbers(Tracer& tracer, Borrowed key);

}  // namespace alternator::trace
