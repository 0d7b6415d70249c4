// Objects that call another callable, which is traced in their place. Each function returns null where the callable is
// something else.
#pragma once

#include "trace/core/call.h"

namespace alternator::trace {

class Tracer;

// The result of alternator.compile: inside of a compiled function it is inlined.
Ref call_compiled(Tracer& t, const Call& call);
// A pre-existing result of torch.jit.script(): its Python function.
Ref call_scripted(Tracer& t, const Call& call);
// functools.partial.
Ref call_partial(Tracer& t, const Call& call);
// torch.compiler.substitute_in_graph: the Python function that is registered for a native one.
Ref call_substitute(Tracer& t, const Call& call);

}  // namespace alternator::trace
