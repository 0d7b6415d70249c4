// torch.compiler.is_compiling() and its like, as the traced program sees them.
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

// True, but for functions of torch that would take TorchDynamo's side of a branch which is wrong here.
Ref answer_compiling_query(Tracer& t);

}  // namespace alternator::trace
