// The module decimal: contexts of the trace, and what becomes of the thread's.
#pragma once

#include "trace/core/call.h"

namespace alternator::trace {

class Tracer;

class Decimals {
 public:
  explicit Decimals(Tracer& tracer) : t(tracer) {}
  Ref call_with_context(const Call& call);
  void set_context(Borrowed context);
  void check_template();
  void use();
  void finish();
  bool used = false;

 private:
  void note_context(Borrowed context);
  Ref context_;      // the copy of the thread's
  Ref context_set_;  // what the program has set in its place
  Tracer& t;
};

}  // namespace alternator::trace
