// Random numbers of Python's: drawn by the residual program, of no value while tracing.
#pragma once

#include "py/error.h"

namespace alternator::trace {

// What random.random() gives in a trace, and what is computed of it with +, -, * and /: a float that nobody knows. It
// may be kept and thrown away; the generator moves on every run. Whatever looks at it ends the trace, which is then cut
// where the first one was drawn.
extern PyTypeObject drawn_type;

int init_drawn();

inline bool is_drawn(Borrowed object) { return Py_IS_TYPE(object.get(), &drawn_type); }

}  // namespace alternator::trace
