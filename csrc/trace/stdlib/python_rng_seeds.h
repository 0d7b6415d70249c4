// Python random generators that a program creates: they are deterministic if they have a seed.
#pragma once

#include "lift/sources/plain.h"
#include "py/import.h"
#include "py/lasting.h"
#include "trace/calls/native_flags.h"

namespace alternator::trace {

// _random.Random, the generator that is written in C.
inline PyTypeObject* native_random() {
  static constinit Lasting<PyTypeObject*> type;
  return type.get([] {
    Ref found = checked(PyObject_GetAttrString(import_module("_random").get(), "Random"));
    return reinterpret_cast<PyTypeObject*>(found.release());
  });
}

// Without a seed the system chooses one, and the hash of an object that is the seed may be an address.
inline bool is_seed(PyObject* const* arguments, size_t count, size_t at) {
  return count > at && arguments[at] != Py_None && lift::is_plain(arguments[at]);
}

// Whether a method of that class makes the generator nondeterministic.
inline bool seeds_at_random(NativeFlags flags, Borrowed self, PyObject* const* arguments, size_t count) {
  if (!self || !flags.has(native::kConstructs | native::kSeeds)) return false;
  if (PyType_Check(self.get())) {
    return flags.has(native::kConstructs) && count > 0 && PyType_Check(arguments[0]) &&
           PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(arguments[0]), native_random()) != 0 &&
           !is_seed(arguments, count, 1);
  }
  return flags.has(native::kSeeds) && PyObject_TypeCheck(self.get(), native_random()) && !is_seed(arguments, count, 0);
}

}  // namespace alternator::trace
