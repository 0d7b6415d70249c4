// optree, the native twin of torch.utils._pytree.
#pragma once

#include "py/error.h"

namespace alternator::lift {

struct TreeTypes {
  PyTypeObject* spec;      // optree.PyTreeSpec: immutable; its __getstate__ says all that it holds
  PyTypeObject* iterator;  // optree.PyTreeIter
};
// Null: nobody has loaded optree.
const TreeTypes* tree_types();
inline bool is_tree_spec(PyObject* object) {
  const TreeTypes* types = tree_types();
  return types != nullptr && Py_TYPE(object) == types->spec;
}

}  // namespace alternator::lift
