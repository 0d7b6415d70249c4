// Calls of classes: what `C(x)` makes, and what the constructor of a native type does with its arguments.
#pragma once

#include "trace/core/call.h"

namespace alternator::trace {

class Tracer;

// Null: the callable is no class.
Ref call_class(Tracer& t, const Call& call);

// Whether instances of a class may be made natively: a break where they may not. Returns its native base.
PyTypeObject* check_class_call(Tracer& t, PyTypeObject* type);

}  // namespace alternator::trace
