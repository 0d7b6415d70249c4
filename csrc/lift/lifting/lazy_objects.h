// Values that the program has moved but not read.
#pragma once

#include "lift/sources/source.h"

#include <vector>

namespace alternator::lift {

// A lazy value in a frame slot. Instructions may move it; it is lifted and guarded only when one reads it.
struct LazyObject {
  PyObject_HEAD PyObject* value;
  Source* source;
  PyObject* lifted;  // borrowed: the lifter keeps it; null: not read yet
};
extern PyTypeObject lazy_type;
int init_lazy();
inline bool is_lazy(PyObject* object) { return Py_IS_TYPE(object, &lazy_type); }

// A container that is referenced from the value stack and locals only, and whose slots are lifted when they are read: a
// pre-existing tuple, or a tuple or list that the program has built from lazy values. Pre-existing lists and other
// mutable containers have a Shadow for that.
struct Open {
  Source* source;  // of a pre-existing tuple; null: built in the trace, holding lazy objects and open containers
  std::vector<bool> read;  // of a pre-existing tuple: slots that are lifted; the others hold the pre-existing objects
};

}  // namespace alternator::lift
