// One accessor step from a value to the next: follow() for callers that take many.
#pragma once

#include "lift/sources/plain.h"
#include "lift/sources/source.h"

namespace alternator::lift {

struct Step {
  Access access;
  // The parent is an instance dict (kDict). As long as an object keeps its attributes inline, or has none yet, there is
  // no dict: then the object itself stands for it, and the attributes are read in place.
  bool among_attributes = false;
  Py_ssize_t index = 0;
  PyObject* key = nullptr;
};

inline Step step_of(const Source& source) {
  return {source.access, source.parent != nullptr && source.parent->access == Access::kDict, source.index,
          source.key.get()};
}

// Facts about a container, cached while its parts are read one by one. Valid as long as the container is not mutated.
struct Memo {
  KeySafety keys = KeySafety::kUnasked;
  Py_ssize_t next_index = 0;  // keys and elements that are read in order are not searched from the start
  Py_ssize_t position = 0;
  void* node = nullptr;
};

// `value` is borrowed from the parent unless `owner` is filled.
Found take(const Step& step, PyObject* parent, PyObject** value, Ref* owner, Memo* memo);

// --- instance dicts that may not exist yet: `dict` is what a kDict step found ---
inline bool is_stand_in(Access access, PyObject* dict) { return access == Access::kDict && !PyDict_CheckExact(dict); }
Py_ssize_t attribute_count(PyObject* stand_in);
Found find_attribute(PyObject* stand_in, PyObject* name, PyObject** value);
bool next_attribute(PyObject* stand_in, Py_ssize_t* position, PyObject** name, PyObject** value);
// The instance dict itself; created if necessary. Null, with an error set: it cannot be created.
Ref real_dict(Borrowed stand_in);

}  // namespace alternator::lift
