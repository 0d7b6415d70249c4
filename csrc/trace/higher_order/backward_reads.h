// What the backward() of an autograd.Function reads, of a node whose backward runs long after the trace. AOTAutograd
// runs it once, while it compiles: which code that is must be guarded, and what it may find otherwise later is a reason
// to leave AOTAutograd out. (alternator/backwards.py looks for what it reads by name.)
#pragma once

#include "trace/core/tracer.h"

#include <span>

namespace alternator::trace {

// Guards which code it is, and that of the functions that it calls by name. `context`: the ctx that forward() left when
// it was called with `arguments`; null: there is none. False: it may be another one whenever it runs, as far as
// `context` and its code say.
bool guard_backward(Tracer& tracer, Borrowed cls, Borrowed context, std::span<PyObject* const> arguments);

}  // namespace alternator::trace
