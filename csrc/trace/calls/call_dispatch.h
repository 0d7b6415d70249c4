// Every call of the traced program: handlers first, then the generic stages.
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

Ref call(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
Ref call_function(Tracer& t, Borrowed function, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
Ref query(Tracer& t, Borrowed builtin);
void check_class_call(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t count);
PyTypeObject* check_class_call(Tracer& t, PyTypeObject* type);  // the native base
void escape_all(Tracer& t, PyObject* const* arguments, size_t count);

}  // namespace alternator::trace
