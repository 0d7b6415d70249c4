// Calls that read or set a process-wide flag of torch: backends' settings, deterministic algorithms, autocast's cache.
#pragma once

#include "trace/core/call.h"

#include <string>

namespace alternator::trace {

class Tracer;

class FlagCalls {
 public:
  explicit FlagCalls(Tracer& tracer) : t(tracer) {}

  // Getters and setters of flags that are restored at the end of the trace.
  Ref get(const Call& call);
  Ref set(const Call& call);
  // Getters and setters of flags whose exact value torch does not expose.
  Ref query(const Call& call);
  Ref set_unchanged(const Call& call);
  // Entering an autocast scope; clears: dropping the casts that autocast has cached.
  Ref cast(const Call& call, bool clears);

  Ref ask(Borrowed getter, PyObject* const* arguments, size_t count);
  void use_for(const std::string& name);  // a torch call

  int nesting_before = 0;  // of autocast

 private:
  void use(uint8_t groups);
  void take_arguments(const Call& call);
  void check_casts(bool clears, Borrowed callable);
  static Ref run(const Call& call);

  Tracer& t;
};

}  // namespace alternator::trace
