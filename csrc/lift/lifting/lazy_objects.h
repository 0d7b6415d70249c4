// Values that the program has moved but not read, and containers of which it has read only some slots.
#pragma once

#include "lift/sources/source.h"

#include <unordered_map>
#include <vector>

namespace alternator::lift {

class Lifter;

// A lazy value in a frame slot. Instructions may move it; it is lifted and guarded only when one reads it.
struct LazyObject {
  PyObject_HEAD PyObject* value;
  Source* source;
  PyObject* lifted;  // borrowed: the lifter keeps it; null: not read yet
};
extern PyTypeObject lazy_type;
int init_lazy();
inline bool is_lazy(PyObject* object) { return Py_IS_TYPE(object, &lazy_type); }

class LazyValues {
 public:
  explicit LazyValues(Lifter& lifter) : lifter_(lifter) {}

  Ref make(Borrowed value, Source* source);  // a lazy object
  PyObject* read(Borrowed stand_in);         // the lifted value of a lazy object; borrowed
  // A lazy frame slot: `stand_in` is reconstructed as the value found at `source`.
  void know(Borrowed stand_in, Borrowed value, Source* source);

  // As Lifter::lift(), but the elements of a tuple are lifted when they are read: for values that go to the value stack
  // only. Code that stores an open container anywhere else calls Lifter::escape().
  Ref lift_open(Borrowed value, Source* source);
  bool has_open() const { return !open_.empty(); }
  bool is_open(Borrowed container) const { return !open_.empty() && open_.contains(container.get()); }
  // A tuple or list that was built from values that are is_partly_read().
  void note_open(Borrowed made);
  bool is_partly_read(Borrowed value) const;
  Ref open_item(Borrowed container, Py_ssize_t index);  // null: there is none
  void guard_open_length(Borrowed container);
  void guard_open_truth(Borrowed container);
  // Lifts the rest of an open container.
  void close(Borrowed container);

 private:
  // A container that is referenced from the value stack and locals only, and whose slots are lifted when they are read:
  // a pre-existing tuple, or a tuple or list that the program has built from lazy values. Pre-existing lists and other
  // mutable containers have a Shadow for that.
  struct Open {
    Source* source;  // of a pre-existing tuple; null: built in the trace, holding lazy objects and open containers
    std::vector<bool> read;  // of a pre-existing tuple: slots that are lifted; the others hold the pre-existing objects
  };
  void read_slot(Borrowed container, Open& open, Py_ssize_t index);

  Lifter& lifter_;
  std::unordered_map<PyObject*, Open> open_;
};

}  // namespace alternator::lift
