// torch.compiler.assume_constant_result.
#pragma once

#include "trace/core/call.h"

namespace alternator::trace {

class Tracer;

Ref call_constant(Tracer& t, const Call& call);

}  // namespace alternator::trace
