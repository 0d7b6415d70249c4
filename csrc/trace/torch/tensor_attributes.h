// What attributes.cpp asks about those of tensors.
#pragma once

#include "lift/lifting/lifter.h"
#include "py/error.h"

#include <string>

namespace alternator::trace {

inline bool is_torchs_getter(PyObject* attribute) {
  return attribute != nullptr &&
         (Py_IS_TYPE(attribute, &PyGetSetDescr_Type) || Py_IS_TYPE(attribute, &PyProperty_Type));
}

// A name, for a message.
std::string text_of(Borrowed name);
// A slot of a class over a container, or what the layout has besides its items (default_factory): in the private copy,
// where native code looks, and noted. False: it is none of these.
bool set_member_of_container(lift::Lifter& lifter, Borrowed container, Borrowed name, Borrowed value);
[[noreturn]] void no_attribute(Borrowed owner, Borrowed name, bool writes = false);

}  // namespace alternator::trace
