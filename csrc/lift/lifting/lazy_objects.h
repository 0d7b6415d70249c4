// What the program has moved about but not looked at.
#pragma once

#include "lift/sources/source.h"

#include <vector>

namespace alternator::lift {

// A stand-in for a value in a frame slot that was not read yet. Instructions may move it about; only when one looks at
// it, it is lifted and guarded.
struct LazyObject {
  PyObject_HEAD PyObject* value;
  Source* source;
  PyObject* lifted;  // borrowed: the lifter keeps it; null: not read yet
};
extern PyTypeObject lazy_type;
int init_lazy();
inline bool is_lazy(PyObject* object) { return Py_IS_TYPE(object, &lazy_type); }

// A container that is on the value stack and in locals only, and whose slots are lifted as they are read: a tuple from
// outside, or a tuple or list that the program has made of what it did not look at. Lists and their like from outside
// have a Shadow for that.
struct Open {
  Source* source;          // of a tuple from outside; null: made in the trace, with stand-ins and open ones in it
  std::vector<bool> read;  // of a tuple from outside: slots that are lifted; the others hold what is outside
};

}  // namespace alternator::lift
