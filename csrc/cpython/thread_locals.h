// threading.local: one dict of attributes per thread. Read-only unless stated otherwise.
#pragma once

#include "py/ref.h"

namespace alternator::cpython {

// threading.local or a subclass. False where this CPython's layout is not the one known here.
bool is_thread_local(PyTypeObject* type);
// The dict of the running thread, borrowed; null while it has none.
PyObject* thread_dict(PyObject* local);
// The first attribute access of a thread runs the class's __init__.
inline bool is_filled_by_init(PyTypeObject* type) { return type->tp_init != PyBaseObject_Type.tp_init; }
// The dict of the running thread, created if necessary. Null with an error set: that failed.
Ref make_thread_dict(PyObject* local);
// A slot wrapper of threading.local itself, such as its __getattribute__.
bool is_thread_local_slot(PyObject* method);

}  // namespace alternator::cpython
