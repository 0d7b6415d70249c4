// Fakes whose value is known: torch.tensor([1, 2]), from_numpy, and what small operators make of them.
#pragma once

#include "fake/kernels.h"
#include "fake/session.h"

namespace alternator::fake {

// A fake with the value of `value`, a real tensor, which is copied.
at::Tensor make_constant(const SessionState& session, const at::Tensor& value);

// The value of a fake if it is known: a real tensor over shared storage, not to be written. Also for wrapped numbers.
std::optional<at::Tensor> peek_constant(const at::Tensor& tensor);

// lift_fresh and its kin: torch hands over a tensor that it made of Python data.
void lift_constant(const Call& call);

// Runs an operator for real, all of whose tensors are known: .item(), nonzero and the like. False where it must not.
bool evaluate(const Call& call);

// What the operator writes is known no longer.
void forget_written(const Call& call);

// Runs an operator some of whose tensors are known. Outputs are known if all are and the work is small;
// what it writes is known no longer, or again.
void compute_with_constants(const Call& call, bool all_known);

}  // namespace alternator::fake
