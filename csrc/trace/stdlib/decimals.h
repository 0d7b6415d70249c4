// TODO
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

class Decimals {
 public:
  explicit Decimals(Tracer& tracer) : t(tracer) {}
  // The module decimal (decimals.cpp). Null: it is no call that returns or sets a context.
  Ref call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  void use();
  void finish();
  bool used = false;

 private:
  void set_context(Borrowed context);
  void note_context(Borrowed context);
  Ref context_;      // the copy of the thread's
  Ref context_set_;  // what the program has set in its place
  Tracer& t;
};

}  // namespace alternator::trace
