// Tensors that stand where torch wants a number (torch_calls.cpp).
#pragma once

#include "trace/core/tracer.h"

namespace alternator::trace {

// What .item() of a tensor gives, recorded.
Ref number_in(Tracer& tracer, PyObject* tensor);

// The index of a tensor with numbers in the place of tensors in its slices, where these are captured. Null: there are
// none.
Ref slices_with_numbers(Tracer& tracer, Borrowed key);

}  // namespace alternator::trace
