// Objects that stand between `await` and a generator. Their layouts are private; the first field after the
// object header is the generator in all versions from 3.11 to 3.13 (Objects/genobject.c).
#include "cpython/operations.h"

extern "C" {
PyAPI_DATA(PyTypeObject) _PyCoroWrapper_Type;
PyAPI_DATA(PyTypeObject) _PyAsyncGenASend_Type;
}

namespace alternator::cpython {

struct ReceiverLayout {
  PyObject_HEAD
  PyObject* generator;
};

PyObject* driven_generator(PyObject* receiver) {
  if (PyGen_CheckExact(receiver) || PyCoro_CheckExact(receiver)) return receiver;
  if (Py_IS_TYPE(receiver, &_PyCoroWrapper_Type) || Py_IS_TYPE(receiver, &_PyAsyncGenASend_Type)) {
    return reinterpret_cast<ReceiverLayout*>(receiver)->generator;
  }
  return nullptr;
}

Ref renewed_receiver(PyObject* receiver) {
  if (!Py_IS_TYPE(receiver, &_PyAsyncGenASend_Type)) return Ref::share(receiver);
  // An asend() that saw an error is closed; the step it stood for is asked for anew.
  return Ref::steal(PyObject_CallMethod(driven_generator(receiver), "asend", "O", Py_None));
}

}  // namespace alternator::cpython
