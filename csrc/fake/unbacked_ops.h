// Operators whose shapes or numbers follow from numbers that only a run knows: torch's own symbolic shapes answer them.
#pragma once

#include "fake/kernels.h"

namespace alternator::fake {

// Whether an argument is a symbolic number, or a tensor with symbolic sizes, strides or offset.
bool is_symbolic(const Call& call);

// Changes with the data of a fake: its version, or, where something else shares its memory, all writes of the session
// (`x.data` has no part in the version of x).
uint64_t data_version(const SessionState& session, const at::Tensor& tensor);

// Replaces the arguments by the outputs, which Python's FakeTensorMode finds over the session's ShapeEnv.
void compute_symbolically(const Call& call);

}  // namespace alternator::fake
