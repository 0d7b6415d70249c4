// Lifting: what a trace may see of the world before it.
#pragma once

#include "fake/fake.h"
#include "lift/shadow.h"

namespace alternator::lift {

// What is known of an object of the trace that came from outside.
struct Known {
  Source* source = nullptr;
  Shadow* shadow = nullptr;      // it is the private copy of a container
  Shadow* attributes = nullptr;  // its private instance dict
  bool instance = false;         // an object with attributes, seen as itself: reads and writes go to `attributes`
  bool opaque = false;           // it may be passed on; any use of it breaks
};

// Thrown where a value cannot be lifted: a break at the instruction that read it.
class CannotLift : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Lifter {
 public:
  Lifter(SourceTree& tree, fake::Session& session);
  ~Lifter();
  Lifter(const Lifter&) = delete;
  Lifter& operator=(const Lifter&) = delete;

  // The program's view of `value`, found at `source`; guards as the design's table says. The same object gives the same view.
  Ref lift(Borrowed value, Source* source);
  // Null: the object was made in the trace (or is a plain constant).
  const Known* known(Borrowed lifted) const;
  Known* known(Borrowed lifted);
  // A container that leaves the stack and the locals is lifted whole.
  void escape(Borrowed lifted);

  // Container slots, lifted on first read. Dict: null when absent (guarded).
  Ref dict_item(Shadow& shadow, Borrowed key);
  bool dict_contains(Shadow& shadow, Borrowed key);
  Ref list_item(Shadow& shadow, Py_ssize_t index);
  void lift_whole(Shadow& shadow);
  // The private instance dict of an outside object; null where its type has none.
  Shadow* attributes(Borrowed instance);

  // Facts about classes: what `type` has under `name` (null: nothing), guarded.
  PyObject* type_attribute(PyTypeObject* type, Borrowed name);
  void use_special_methods(PyTypeObject* type);
  bool made_here(Borrowed object) const;  // a class or function made in this trace
  void note_made_here(Borrowed object);
  Source* source_of_type(PyTypeObject* type);

  // For replay.
  const std::deque<Shadow>& shadows() const { return shadows_; }
  const std::vector<PlaceWrite>& writes() const { return writes_; }
  // The tensors that were lifted: (fake, source).
  SourceTree& tree() { return tree_; }
  fake::Session& session() { return session_; }

 private:
  SourceTree& tree_;
  fake::Session& session_;
  std::deque<Shadow> shadows_;
  std::vector<PlaceWrite> writes_;
};

}  // namespace alternator::lift
