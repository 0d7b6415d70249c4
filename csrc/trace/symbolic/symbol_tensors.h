// Tensors whose data are unbacked symbols.
#pragma once

#include "trace/core/call.h"

namespace alternator::trace {

class Tracer;

// torch.tensor(n) and torch.tensor([n, 1]). Null: it is no such call.
Ref tensor_of_symbols(Tracer& t, const Call& call);

}  // namespace alternator::trace
