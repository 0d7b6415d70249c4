// TODO
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

class Optree {
 public:
  explicit Optree(Tracer& tracer) : t(tracer) {}
  // optree functions (optree.cpp). Null: it is none of these.
  Ref call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);

 private:
  void use_registry();
  void check(Borrowed tree, int depth = 0);
  bool registry_used_ = false;
  Tracer& t;
};

}  // namespace alternator::trace
