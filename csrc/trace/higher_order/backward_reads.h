// What the backward() of an autograd.Function reads, for a node whose backward pass runs long after the trace.
// AOTAutograd runs it once, at compile time: the identity of its code must be guarded, and AOTAutograd is not used if
// it reads anything that may differ later. (alternator/backward_purity.py looks for what it reads by name.)
#pragma once

#include "trace/core/tracer.h"

#include <span>

namespace alternator::trace {

// Guards the identity of its code, and of the functions that it calls by name. `context`: the ctx that forward() left
// when it was called with `arguments`; null: there is none. False: as far as `context` and its code show, it may behave
// differently in each run.
bool guard_backward(Tracer& tracer, Borrowed cls, Borrowed context, std::span<PyObject* const> arguments);

}  // namespace alternator::trace
