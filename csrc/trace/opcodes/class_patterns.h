// Class patterns of a match statement, by the language's rules over lifted objects.
#pragma once

#include "trace/core/tracer.h"

namespace alternator::trace {

// The attributes that the sub-patterns look at, as a tuple. Null: it does not match. Throws PyError, or Stop.
Ref match_class(Tracer& tracer, Borrowed subject, Borrowed type, Py_ssize_t positional, Borrowed keyword_names);

}  // namespace alternator::trace
