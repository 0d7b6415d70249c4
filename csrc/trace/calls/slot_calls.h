// Calls of slots: `items.__len__()`, `len.__call__(x)`, `super().__setattr__(name, value)`. Each returns null where the
// callable is something else.
#pragma once

#include "trace/core/call.h"

namespace alternator::trace {

class Tracer;

// A slot that is bound to a container or a tensor of the trace.
Ref call_slot_of_container(Tracer& t, const Call& call);
// A slot that was bound before the trace, and is otherwise opaque: which slot it is, is guarded.
Ref call_preexisting_slot(Tracer& t, const Call& call);
// `callable.__call__`, bound or not: that callable is called instead.
Ref call_through_call_slot(Tracer& t, const Call& call);
// A slot that has a handler in its unbound form.
Ref call_slot_with_handler(Tracer& t, const Call& call);

}  // namespace alternator::trace
