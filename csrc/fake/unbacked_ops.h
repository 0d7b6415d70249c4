// Operators whose shapes or scalars depend on unbacked symbols: computed by torch's symbolic shapes.
#pragma once

#include "fake/kernels.h"

namespace alternator::fake {

// Whether an argument is a symbolic scalar, or a tensor with symbolic sizes, strides or offset.
bool is_symbolic(const Call& call);

// Changes with the data of a fake: its version or, where something else shares its memory, the session's count of
// writes (`x.data` does not share the version counter of x).
uint64_t data_version(const SessionState& session, const at::Tensor& tensor);

// What is known of a tensor whose data determined a size, as it is now. Valid until the next call.
SessionState::Seen& seen_row(SessionState& session, const at::Tensor& tensor);
// Tells a FakeTensor how many of its elements are not zero.
void set_memo(const at::Tensor& fake_tensor, const c10::SymInt& count);

// Replaces the arguments by the outputs, which torch's FakeTensorMode computes over the session's ShapeEnv.
void compute_symbolically(const Call& call);

}  // namespace alternator::fake
