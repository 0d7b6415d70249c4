// Thread state that a trace changes, and restores.
#pragma once

#include "fake/saved_hooks.h"
#include "fake/thread_state.h"
#include "lift/sources/numpy_types.h"
#include "py/gc.h"
#include "trace/calls/native_reads.h"

namespace alternator::trace {

class Tracer;

class TraceScope {
 public:
  explicit TraceScope(Tracer& tracer);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Tracer& tracer_;
  const WithoutCollector without_collector_;
  const lift::NumpyErrors numpy_errors_;
  const Reading reading_{false};
  fake::ThreadState thread_;
  const fake::SavedHooksRest hooks_rest_;
  int hook_depth_before_;
};

// User code that torch calls while operations run: it would see the fake tensors of a trace. And while torch functions
// are disabled, no call would reach the recording mode.
// Null: nothing of the kind is active.
const char* active_callbacks();

}  // namespace alternator::trace
