// The attributes of an AttributeError besides its message: `name` and `obj`, which "did you mean" suggestions read.
#pragma once

#include "cpython/version.h"
#include "py/names.h"

namespace alternator::cpython {

// As PyObject_GetAttr() does for an AttributeError raised by a user's __getattr__ or descriptor.
inline void name_attribute_error(Borrowed owner, Borrowed name) {
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return;
  Ref error = take_raised();
  const auto* fields = reinterpret_cast<PyAttributeErrorObject*>(error.get());
  if (PyErr_GivenExceptionMatches(error.get(), PyExc_AttributeError) && fields->name == nullptr &&
      fields->obj == nullptr) {
    // A failure to set them must not hide the AttributeError.
    if (PyObject_SetAttr(error.get(), names::name, name.get()) < 0 ||
        PyObject_SetAttrString(error.get(), "obj", owner.get()) < 0)
      PyErr_Clear();
  }
  set_raised(std::move(error));
}

}  // namespace alternator::cpython
