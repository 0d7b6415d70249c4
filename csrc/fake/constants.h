// Fakes whose value is known: torch.tensor([1, 2]), from_numpy, and what cheap operators make of them.
#pragma once

#include "fake/session.h"

namespace alternator::fake {

// A fake with the value of `value`, a real tensor, which is copied.
at::Tensor make_constant(const SessionState& session, const at::Tensor& value);

// The value of a fake if it is known: a real tensor over shared storage, not to be written. Also for wrapped numbers.
std::optional<at::Tensor> peek_constant(const at::Tensor& tensor);

}  // namespace alternator::fake
