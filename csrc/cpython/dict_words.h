// The memory words that change whenever a dict changes.
#pragma once

#include "py/ref.h"

#include <cstdint>

namespace alternator::cpython {

// A word that differs whenever dict_version() does, and one that holds the number of items.
inline const uint64_t* dict_version_word(PyObject* dict) {
  return &reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
}
inline const Py_ssize_t* dict_count_word(PyObject* dict) { return &reinterpret_cast<PyDictObject*>(dict)->ma_used; }

}  // namespace alternator::cpython
