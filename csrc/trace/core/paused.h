// Scopes inside a trace in which frames are not traced.
#pragma once

#include "interpreter/control.h"

namespace alternator::trace {

class Tracer;

// Torch's code runs eagerly: its frames are not traced.
class Paused {
 public:
  explicit Paused(Tracer& tracer);
  ~Paused();
  Paused(const Paused&) = delete;
  Paused& operator=(const Paused&) = delete;

 private:
  Tracer* tracer_;
};

// Objects of a trace die: frames that their finalization starts end at once.
class Discarding {
 public:
  Discarding();
  ~Discarding();
  Discarding(const Discarding&) = delete;
  Discarding& operator=(const Discarding&) = delete;

 private:
  bool abandoning_;
  PyObject* (*evaluator_)(PyThreadState*, cpython::Frame*, int);
};

}  // namespace alternator::trace
