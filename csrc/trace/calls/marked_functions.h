// What a mark (markers.h) makes of the call of a Python function.
#pragma once

#include "trace/core/call.h"

namespace alternator::trace {

class Tracer;

// Null: the function has no mark, or the mark does not apply to these arguments. It is traced like any other.
Ref call_marked(Tracer& t, const Call& call);

}  // namespace alternator::trace
