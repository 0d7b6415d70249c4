// Random generators of Python's that a program makes: what they give follows from their seed, if they have one.
#pragma once

#include "lift/sources/plain.h"
#include "py/import.h"
#include "py/lasting.h"

#include <string_view>

namespace alternator::trace {

// _random.Random, the generator that is written in C.
inline PyTypeObject* native_random() {
  static constinit Lasting<PyTypeObject*> type;
  return type.get([] {
    Ref found = checked(PyObject_GetAttrString(import_module("_random").get(), "Random"));
    return reinterpret_cast<PyTypeObject*>(found.release());
  });
}

// Without a seed it is the machine's choice, and that of an object may be an address.
inline bool is_seed(PyObject* const* arguments, size_t count, size_t at) {
  return count > at && arguments[at] != Py_None && lift::is_plain(arguments[at]);
}

// Whether a method of that class leaves it to the machine what the generator gives from then on.
inline bool seeds_at_random(std::string_view name, Borrowed self, PyObject* const* arguments, size_t count) {
  if (!self) return false;
  if (PyType_Check(self.get())) {
    return name == "__new__" && count > 0 && PyType_Check(arguments[0]) &&
           PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(arguments[0]), native_random()) != 0 &&
           !is_seed(arguments, count, 1);
  }
  return name == "seed" && PyObject_TypeCheck(self.get(), native_random()) && !is_seed(arguments, count, 0);
}

}  // namespace alternator::trace
