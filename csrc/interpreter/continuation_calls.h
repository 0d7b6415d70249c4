// Calls that a waiting instruction makes when it continues: an operator tries the other operand, __init__ follows
// __new__. In a trace the tracer makes them.
#pragma once

#include "py/ref.h"

namespace alternator {

using ContinuationCall = Ref (*)(Borrowed callable, PyObject* const* arguments, size_t positional,
                                 Borrowed keyword_names);
extern thread_local ContinuationCall continuation_call;  // null: CPython's

// Both: `arguments` has a free slot before it. Null with an error set: it raised.
inline Ref call_natively(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  return Ref::steal(
      PyObject_Vectorcall(callable.get(), arguments, positional | PY_VECTORCALL_ARGUMENTS_OFFSET, keyword_names.get()));
}
inline Ref call_in_continuation(Borrowed callable, PyObject* const* arguments, size_t positional,
                                Borrowed keyword_names) {
  return (continuation_call != nullptr ? continuation_call : call_natively)(callable, arguments, positional,
                                                                            keyword_names);
}

}  // namespace alternator
