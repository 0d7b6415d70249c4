// threading.local: the attributes of one object, in a dict for each thread. Reading only, unless it says otherwise.
#pragma once

#include "py/ref.h"

namespace alternator::cpython {

// threading.local, or a class over it. No, where this CPython keeps the dicts in another way than is known here.
bool is_thread_local(PyTypeObject* type);
// The dict of the running thread, borrowed; null while it has none.
PyObject* thread_dict(PyObject* local);
// The first look of a thread at an attribute runs the class's __init__.
inline bool is_filled_by_init(PyTypeObject* type) { return type->tp_init != PyBaseObject_Type.tp_init; }
// The dict of the running thread, made if need be. Null, with an error set: it cannot be made.
Ref make_thread_dict(PyObject* local);
// A slot of threading.local's own, such as its __getattribute__.
bool is_thread_local_slot(PyObject* method);

}  // namespace alternator::cpython
