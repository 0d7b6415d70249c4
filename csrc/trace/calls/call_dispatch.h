// Every call of the traced program: handlers first, then the generic stages.
#pragma once

#include "trace/calls/class_calls.h"
#include "trace/core/call.h"

namespace alternator::trace {

class Tracer;

Ref call(Tracer& t, const Call& call);

// Containers among these are lifted whole: code that the tracer does not follow reads them.
void escape_all(Tracer& t, PyObject* const* arguments, size_t count);
inline void escape_all(Tracer& t, const Call& call) { escape_all(t, call.arguments, call.count()); }

}  // namespace alternator::trace
