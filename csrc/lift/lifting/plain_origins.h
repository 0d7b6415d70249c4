// Where plain values came from, for programs that distinguish equal ones by identity.
#pragma once

#include "lift/sources/pointer_tables.h"
#include "lift/sources/source.h"

namespace alternator::lift {

class Lifter;

class PlainOrigins {
 public:
  explicit PlainOrigins(Lifter& lifter) : lifter_(lifter) {}

  void note(Borrowed plain, Source* source);
  // A container of plain values under one guard: its elements have no origin.
  void note_guarded_whole(Borrowed container) { guarded_whole_.push_back(Ref::share(container)); }

  // It came from one source only: wherever the program meets this object, it is that value passed on.
  bool has_one(Borrowed plain);
  // Guards the identity of a plain value at all its sources. False: it was computed in the trace.
  bool guard_identity(Borrowed plain);
  // The same, also for strings that were computed in the trace from values that are guarded in this way: an equal
  // pre-existing one would be another object. False: a container under a single guard holds it.
  bool guard_text_identity(Borrowed plain);
  // The source of a plain value that the program may distinguish by identity from an equal one; null: it is a constant.
  // Adds the guard that ensures this.
  Source* of(Borrowed plain);

 private:
  Lifter& lifter_;
  PointerMap<PyObject, std::vector<Source*>> sources_;  // of plain values, which lift to themselves
  std::vector<Ref> guarded_whole_;
};

}  // namespace alternator::lift
