// What an AttributeError says besides its text: `name` and `obj`, which "did you mean" looks at.
#pragma once

#include "cpython/version.h"
#include "py/names.h"

namespace alternator::cpython {

// As PyObject_GetAttr() does it with whatever a hook or a descriptor of the program's has raised.
inline void name_attribute_error(Borrowed owner, Borrowed name) {
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return;
  Ref error = take_raised();
  const auto* fields = reinterpret_cast<PyAttributeErrorObject*>(error.get());
  if (PyErr_GivenExceptionMatches(error.get(), PyExc_AttributeError) && fields->name == nullptr &&
      fields->obj == nullptr) {
    // Losing them must not hide the AttributeError.
    if (PyObject_SetAttr(error.get(), names::name, name.get()) < 0 ||
        PyObject_SetAttrString(error.get(), "obj", owner.get()) < 0)
      PyErr_Clear();
  }
  set_raised(std::move(error));
}

}  // namespace alternator::cpython
