// TODO
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

// dispatch() of a functools.singledispatch function, and logging.Manager.getLogger(); null: the function itself is
// traced.
Ref call_dispatch(Tracer& t, Borrowed function, Borrowed cls);

}  // namespace alternator::trace
