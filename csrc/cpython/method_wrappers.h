// Method wrappers: `x.__len__` of a type that is implemented in C. Its structure is private to descrobject.c, and the
// same in 3.11 to 3.13. The attributes `__self__`, `__name__` and `__objclass__` show its parts, as new references.
#pragma once

#include "py/ref.h"

namespace alternator::cpython {

struct MethodWrapper {
  PyObject_HEAD PyWrapperDescrObject* slot;
  PyObject* self;
};

#if PY_VERSION_HEX < 0x030D0000
inline PyTypeObject* method_wrapper_type() { return &_PyMethodWrapper_Type; }
#else  // 3.13 does not export it
inline PyTypeObject* method_wrapper_type() {
  static PyTypeObject* const type = Ref::steal(PyObject_GetAttrString(Py_None, "__str__")).type();
  return type;
}
#endif

// Null: it is no method wrapper.
inline const MethodWrapper* as_method_wrapper(PyObject* object) {
  return Py_IS_TYPE(object, method_wrapper_type()) ? reinterpret_cast<const MethodWrapper*>(object) : nullptr;
}

}  // namespace alternator::cpython
