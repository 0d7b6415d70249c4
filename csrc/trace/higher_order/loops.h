// What the calls of torch's higher-order operators with traced functions (loops, flex_attention) have in common.
#pragma once

#include "trace/core/call.h"

namespace alternator::trace {

class Tracer;

// The function that users call, whose Python code calls the operator: it branches on is_compiling(), so that no graph
// break is possible until it has finished.
Ref call_public_operator(Tracer& t, const Call& call);
// The operator itself. `what`: its name, for messages; `fits`: its arguments match its signature.
void check_operator_call(Tracer& t, const char* what, bool fits, const Call& call);

}  // namespace alternator::trace
