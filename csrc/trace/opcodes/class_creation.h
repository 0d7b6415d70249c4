// Class creation: classes that the trace makes, and dir().
#pragma once

#include "py/ref.h"

#include <vector>

namespace alternator::trace {

class Tracer;

class ClassCreation {
 public:
  explicit ClassCreation(Tracer& tracer) : t(tracer) {}

  // True: the call creates a class.
  bool begin_call(Borrowed callable, PyObject* const* arguments, size_t positional);
  void begin(Borrowed bases);
  void finish(Borrowed cls);
  void guard_abstract_methods(Borrowed cls);
  Ref names_of(Borrowed object);  // dir()

  std::vector<PyTypeObject*> hooked_bases;  // pre-existing bases of classes with a __subclasshook__

 private:
  Tracer& t;
};

// Checks before a native call that is about classes.
void check_class_call(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t count);

}  // namespace alternator::trace
