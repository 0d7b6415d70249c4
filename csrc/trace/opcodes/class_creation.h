// TODO
#pragma once
#include <vector>

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

class ClassCreation {
 public:
  explicit ClassCreation(Tracer& tracer) : t(tracer) {}
  Ref names_of(Borrowed object);  // dir()
  // Class creation (class_creation.cpp). True: the call creates a class.
  bool begin_call(Borrowed callable, PyObject* const* arguments, size_t positional);
  void begin(Borrowed bases);
  void finish(Borrowed cls);
  void guard_abstract_methods(Borrowed cls);
  std::vector<PyTypeObject*> hooked_bases;  // pre-existing bases of classes with a __subclasshook__

 private:
  Tracer& t;
};

}  // namespace alternator::trace
