// What attributes.cpp asks about those of tensors.
#pragma once

#include "py/error.h"

#include <string>

namespace alternator::trace {

inline bool is_torchs_getter(PyObject* attribute) {
  return attribute != nullptr &&
         (Py_IS_TYPE(attribute, &PyGetSetDescr_Type) || Py_IS_TYPE(attribute, &PyProperty_Type));
}

// A name, for a message.
std::string text_of(Borrowed name);
[[noreturn]] void no_attribute(Borrowed owner, Borrowed name, bool writes = false);

}  // namespace alternator::trace
