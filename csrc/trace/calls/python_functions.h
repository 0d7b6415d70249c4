// Calls of Python functions: marked ones first, then those that are traced as frames.
#pragma once

#include "trace/core/call.h"

namespace alternator::trace {

class Tracer;

Ref call_function(Tracer& t, const Call& call);

}  // namespace alternator::trace
