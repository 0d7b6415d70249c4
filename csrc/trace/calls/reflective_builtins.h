// Builtins that inspect objects, as other parts of the tracer need them.
#pragma once

#include "py/ref.h"
#include "trace/calls/native_flags.h"

namespace alternator::trace {

class Tracer;

// Calls a builtin that reads process state, and guards the result.
Ref query(Tracer& t, Borrowed builtin);
Ref subclasses_of(Tracer& t, Borrowed cls);
// hash(): an int, or an identity if it depends on an address.
Ref hash_of(Tracer& t, Borrowed value, Borrowed callable);
// What copy and pickle call on an object (__reduce_ex__ and the like); null: the trace made the object, and native
// code may answer.
Ref reduce(Tracer& t, Borrowed callable, NativeFlags flags, PyObject* const* arguments, size_t count);

}  // namespace alternator::trace
