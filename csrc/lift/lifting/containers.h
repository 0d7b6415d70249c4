// Private copies of containers, whose slots are lifted when they are first read.
#pragma once

#include "lift/lifting/shadow.h"

#include <deque>

namespace alternator::lift {

class Lifter;

class Containers {
 public:
  explicit Containers(Lifter& lifter) : lifter_(lifter) {}

  Ref dict_item(Shadow& shadow, Borrowed key);  // null: absent, and guarded so
  bool dict_contains(Shadow& shadow, Borrowed key);
  void dict_store(Shadow& shadow, Borrowed key, Borrowed value);  // null value: delete an existing key
  Ref list_item(Shadow& shadow, Py_ssize_t index);                // of a deque too
  bool set_contains(Shadow& shadow, Borrowed element);
  void before_set_step(Borrowed set, SetStepKind kind, Borrowed element);  // any set
  void note_set_step(Borrowed set, SetStepKind kind, Borrowed element);    // any set; after the step
  void guard_length(Shadow& shadow);
  void guard_truth(Shadow& shadow);
  void guard_keys(Shadow& dict);

  // A list, dict, set or deque (container_rows.cpp).
  Ref lift(Borrowed container, Source* source);
  void lift_whole(Shadow& shadow);
  Shadow& add(ShadowKind kind, Borrowed original, Borrowed copy, Source* source);
  // In the order in which they were first lifted; stable addresses.
  const std::deque<Shadow>& shadows() const { return shadows_; }

 private:
  Ref lift_set(Borrowed set, Source* source);
  Ref lift_deque(Borrowed deque, Source* source);
  Ref lift_dict_by_position(Borrowed dict, Source* source);
  void lift_default_factory(Borrowed original, Borrowed copy, Source* source);
  void lift_dict_whole(Shadow& shadow);
  void guard_contents(Shadow& set);
  bool guard_element(Shadow& set, Borrowed element);

  Lifter& lifter_;
  std::deque<Shadow> shadows_;
};

}  // namespace alternator::lift
