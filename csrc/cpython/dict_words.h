// Where in memory it stands whether a dict has changed.
#pragma once

#include "py/ref.h"

#include <cstdint>

namespace alternator::cpython {

// A word that is another one whenever dict_version() is, and one that says how many items there are.
inline const uint64_t* dict_version_word(PyObject* dict) {
  return &reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
}
inline const Py_ssize_t* dict_count_word(PyObject* dict) { return &reinterpret_cast<PyDictObject*>(dict)->ma_used; }

}  // namespace alternator::cpython
