// Weak references: a trace keeps objects alive that would be gone in eager.
#pragma once

#include "trace/core/call.h"

namespace alternator::trace {

class Tracer;

// A callable proxy is called through; a reference that is about to be dereferenced is checked, no more. Null: nothing
// was called.
Ref call_weak_reference(Tracer& t, const Call& call);

// The callback of a weak reference that was made would not be called for an object that the trace keeps alive: a break.
void check_finalization_is_reported(const Tracer& t, Borrowed made);

}  // namespace alternator::trace
