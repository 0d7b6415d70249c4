// Private views of instance dicts and of modules' dicts.
#pragma once

#include "lift/lifting/shadow.h"

namespace alternator::lift {

class Lifter;

class Namespaces {
 public:
  explicit Namespaces(Lifter& lifter) : lifter_(lifter) {}

  // The private instance dict of a pre-existing object; null if its type has none.
  Shadow* attributes(Borrowed instance);
  // Attributes of an OrderedDict or a partial, which few have: lifted on demand only.
  void open_attributes(Borrowed container);
  // Attributes of an instance of a container subclass: the private copy gets a private __dict__, lifted whole.
  void lift_attributes(Borrowed original, Borrowed copy, Source* source);

  // The private view of a module's dict (globals).
  Shadow& of_globals(Borrowed dict);
  bool is_globals(Borrowed dict) const;
  // A variable as the program sees it now, without lifting it; null: there is none.
  Borrowed peek(Borrowed globals, Borrowed name) const;

 private:
  Lifter& lifter_;
  PointerMap<PyObject, Shadow*> globals_;
};

}  // namespace alternator::lift
