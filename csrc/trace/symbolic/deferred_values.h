// Deferred values: Python random numbers, which the residual program draws and which have no value while tracing, and
// deferred strings.
#pragma once

#include "py/error.h"
#include "trace/core/stop.h"

#include <optional>
#include <vector>

namespace alternator::trace {

class Tracer;

// What random.random() returns in a trace, and what is computed from it with +, -, * and /: a float of unknown value.
// It may be stored and dropped; the generator advances in every run. Any other use ends the trace, which then breaks
// where the first one was drawn.
extern PyTypeObject deferred_random_type;

int init_deferred_random();

inline bool is_deferred_random(Borrowed object) { return Py_IS_TYPE(object.get(), &deferred_random_type); }

// The result of an f-string that shows a tensor or an unbacked symbol: a string of unknown value, such as the message
// of a check that holds. It may be stored and dropped, like a deferred random value. Not a str subclass: native code
// reads a str's characters directly, without calling a slot.
extern PyTypeObject deferred_string_type;

inline bool is_deferred_string(Borrowed object) { return Py_IS_TYPE(object.get(), &deferred_string_type); }
// How many are alive.
size_t deferred_strings();
Ref make_deferred_string();

class DeferredValues {
 public:
  explicit DeferredValues(Tracer& tracer) : t(tracer) {}

  // An operator on a deferred random value.
  Ref combine(binaryfunc operation, Borrowed left, Borrowed right);
  // An f-string over values that are only known at run time becomes a deferred string.
  bool may_show_later(Borrowed value, Borrowed format) const;
  Ref show_later();
  // Null: it is no method that draws from a Python random generator.
  Ref random_method(Borrowed owner, Borrowed name);
  // A draw from a pre-existing generator; null: from another one.
  Ref draw(Borrowed method, Borrowed generator);

  // Where the first of them was created; empty: none was. Whatever needs its value is done by cutting the trace there.
  std::vector<BreakPoint> points;
  std::optional<report::Break> event;

 private:
  Tracer& t;
};

}  // namespace alternator::trace
