// What native code itself does with its arguments: iterates over them, converts them to strings, calls them.
#pragma once

#include "py/ref.h"
#include "trace/calls/native_flags.h"

namespace alternator::trace {

class Tracer;

// What a native function, or the constructor of a native type, itself does with its arguments (native_callbacks.cpp).
void check_native_use(Tracer& t, Borrowed callable, NativeFlags flags, PyObject* const* arguments, size_t count);
void check_type_use(Tracer& t, PyTypeObject* type, PyTypeObject* base, PyObject* const* arguments, size_t count);
void check_callback(Tracer& t, Borrowed callback, PyObject* const* arguments, size_t count);

}  // namespace alternator::trace
