// An exception as text, for the reason of a break.
#pragma once

#include "cpython/objects.h"
#include "py/error.h"

#include <string>

namespace alternator::trace {

// Formats the current exception, and clears it.
inline std::string take_error_text() {
  Ref error = cpython::take_raised();
  Ref text = Ref::steal(PyObject_Str(error.get()));
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  std::string result = std::string(Py_TYPE(error.get())->tp_name) + ": " + (utf8 != nullptr ? utf8 : "?");
  PyErr_Clear();
  return result.substr(0, 300);
}

}  // namespace alternator::trace
