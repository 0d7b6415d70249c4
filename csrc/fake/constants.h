// Fakes whose value is known: torch.tensor([1, 2]), from_numpy, and the results of small operators on them.
#pragma once

#include "fake/kernels.h"
#include "fake/session.h"

namespace alternator::fake {

// A fake with the value of `value`, a real tensor, which is copied.
at::Tensor make_constant(const SessionState& session, const at::Tensor& value);

// The value of a fake if it is known: a real tensor over shared storage, which must not be mutated. Also for wrapped
// numbers.
std::optional<at::Tensor> peek_constant(const at::Tensor& tensor);

// lift_fresh and the like: torch passes a tensor that it made from Python data.
void lift_constant(const Call& call);

// Runs an operator concretely, all of whose tensors have known values: .item(), nonzero and the like. False where it
// must not.
bool evaluate(const Call& call);

// The values of mutated arguments are no longer known.
void forget_written(const Call& call);

// Runs an operator some of whose tensors have known values. The outputs are known if all inputs are and the work is
// small; the values of mutated arguments are then known too, otherwise no longer.
void compute_with_constants(const Call& call, bool all_known);

}  // namespace alternator::fake
