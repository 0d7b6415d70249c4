#include "guards/pin.h"

#include "lift/sources/plain.h"

namespace alternator::guards {

namespace {

// A C function that is bound to a module or a class, not to a user object.
bool is_unbound(PyObject* function) {
  PyObject* self = reinterpret_cast<PyCFunctionObject*>(function)->m_self;
  return self == nullptr || PyModule_Check(self) || PyType_Check(self) || PyCapsule_CheckExact(self);
}

bool may_hold_at(PyObject* object, int depth) {
  PyTypeObject* type = Py_TYPE(object);
  if (lift::is_plain(object) || PyType_Check(object) || PyModule_Check(object) || PyCode_Check(object)) return true;
  if (PyCFunction_Check(object)) return is_unbound(object);
  if (type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type || type == &PyGetSetDescr_Type ||
      type == &PyMemberDescr_Type || type == &PyClassMethodDescr_Type) {
    return true;
  }
  if ((PyTuple_CheckExact(object) || PyFrozenSet_CheckExact(object)) && depth < 64) {
    Ref items = PyTuple_CheckExact(object) ? Ref::share(object) : checked(PySequence_Tuple(object));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); i++) {
      if (!may_hold_at(PyTuple_GET_ITEM(items.get(), i), depth + 1)) return false;
    }
    return true;
  }
  return false;
}

}  // namespace

bool may_hold(PyObject* object) { return may_hold_at(object, 0); }

Pin::Pin(Borrowed object) : address_(object.get()) {
  weak_ = !holds(object.get());
  holder_ = weak_ ? checked(PyWeakref_NewRef(object.get(), nullptr)) : Ref::share(object);
}

}  // namespace alternator::guards
