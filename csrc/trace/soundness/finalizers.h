// Observable finalization: objects that the traced program has removed from the locations that held them.
#pragma once
#include <vector>
#include "interpreter/control.h"
#include "lift/lifting/shadow.h"
#include "lift/sources/source.h"

#include "lift/lifting/lifter.h"

namespace alternator::trace {

class Tracer;

// Whether a container or another location that held this pre-existing object does not hold it any more: it may have
// been deallocated.
bool is_dropped(const lift::Lifter& lifter, Borrowed original);

// Whether dropping a suspended frame's slot would observably finalize its value; to be called before the value is
// lifted.
bool is_observably_finalized_in_slot(Borrowed value);
// The same for the value or anything in it, whatever other references exist.
bool holds_observably_finalized(Borrowed value);

struct HeldInside {
  const lift::Shadow* shadow;
  std::vector<Ref> objects;
  const uint64_t* version;  // of the copy, if it has one
  uint64_t seen = 0;        // ... in which all of them were present
};
class Finalizers {
 public:
  explicit Finalizers(Tracer& tracer) : t(tracer) {}
  void check(Borrowed old, lift::Source* place);
  void watch_slot(Borrowed value);
  bool check_all(const Position& position);
  std::vector<PyObject*> stand_ins;  // for values on the stacks of stopped frames
  size_t shadows_seen = 0;
  bool watches = false;
  bool behind_a_break = false;  // it resumes frames whose slots may hold the last reference to an object

 private:
  void watch_containers();
  PyObject* original_of(PyObject* value) const;
  bool is_in_a_slot(const Position& position, Borrowed wanted) const;
  Borrowed dropped(const Position& position);
  std::vector<HeldInside> held_inside_;
  std::vector<Ref> held_in_slots_;
  Tracer& t;
};

}  // namespace alternator::trace
