// TODO
#pragma once
#include <string>

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

class FlagCalls {
 public:
  explicit FlagCalls(Tracer& tracer) : t(tracer) {}
  // torch flags (flag_calls.cpp). Null: the function neither reads nor sets one.
  Ref call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref ask(Borrowed getter, PyObject* const* arguments, size_t count);
  void use_for(const std::string& name);  // a torch call
  int nesting_before = 0;                 // of autocast

 private:
  void use(uint8_t groups);
  void check_casts(bool clears, Borrowed callable);
  Tracer& t;
};

}  // namespace alternator::trace
