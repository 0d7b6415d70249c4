// optree, the C++ counterpart of torch.utils._pytree.
#pragma once

#include "py/error.h"

namespace alternator::lift {

struct TreeTypes {
  PyTypeObject* spec;      // optree.PyTreeSpec: immutable; its __getstate__ has its complete state
  PyTypeObject* iterator;  // optree.PyTreeIter
};
// Null: optree is not imported.
const TreeTypes* tree_types();
inline bool is_tree_spec(PyObject* object) {
  const TreeTypes* types = tree_types();
  return types != nullptr && Py_TYPE(object) == types->spec;
}

}  // namespace alternator::lift
