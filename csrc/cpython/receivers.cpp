// Objects between `await` and a generator. Their layouts are private; the first field after the object header is the
// generator in all versions from 3.11 to 3.13 (Objects/genobject.c).
#include "cpython/operations.h"
#include "py/names.h"

#include <cstring>

extern "C" {
PyAPI_DATA(PyTypeObject) _PyAsyncGenASend_Type;
}

namespace alternator::cpython {

struct ReceiverLayout {
  PyObject_HEAD PyObject* generator;
};

// The result of a coroutine's __await__(): its type is not exported by every version.
static bool is_coroutine_wrapper(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return !PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) && strcmp(type->tp_name, "coroutine_wrapper") == 0;
}

PyObject* driven_generator(PyObject* receiver) {
  if (PyGen_CheckExact(receiver) || PyCoro_CheckExact(receiver)) return receiver;
  if (is_coroutine_wrapper(receiver) || Py_IS_TYPE(receiver, &_PyAsyncGenASend_Type)) {
    return reinterpret_cast<ReceiverLayout*>(receiver)->generator;
  }
  return nullptr;
}

Ref renewed_receiver(PyObject* receiver) {
  if (!Py_IS_TYPE(receiver, &_PyAsyncGenASend_Type)) return Ref::share(receiver);
  // An asend() that saw an error is closed: the step is requested by a new one.
  return Ref::steal(PyObject_CallMethodOneArg(driven_generator(receiver), names::asend, Py_None));
}

}  // namespace alternator::cpython
