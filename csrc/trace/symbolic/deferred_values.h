// Random numbers of Python's: drawn by the residual program, of no value while tracing.
#pragma once

#include "py/error.h"

namespace alternator::trace {

// What random.random() gives in a trace, and what is computed of it with +, -, * and /: a float that nobody knows. It
// may be kept and thrown away; the generator moves on every run. Whatever looks at it ends the trace, which is then cut
// where the first one was drawn.
extern PyTypeObject deferred_random_type;

int init_deferred_random();

inline bool is_deferred_random(Borrowed object) { return Py_IS_TYPE(object.get(), &deferred_random_type); }

// What an f-string gives that shows a tensor, or a number that only a run knows: a text that nobody knows, such as the
// message of a check that holds. It may be kept and thrown away, like a number that is drawn. No str: native code reads
// the characters of one without asking.
extern PyTypeObject deferred_string_type;

inline bool is_deferred_string(Borrowed object) { return Py_IS_TYPE(object.get(), &deferred_string_type); }
// How many there are.
size_t deferred_strings();
Ref make_deferred_string();

}  // namespace alternator::trace
