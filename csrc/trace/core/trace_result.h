// What one trace has found out, besides what is recorded and lifted.
#pragma once

#include "fake/thread_state.h"
#include "graph/record/ambient_state.h"
#include "interpreter/frame_state.h"
#include "report/event.h"
#include "trace/core/stop.h"

#include <optional>
#include <vector>

namespace alternator::trace {

// What must hold for the tensor data of a call for the trace to apply to it.
struct SpeculatedCheck {
  Ref tensor;  // one bool
  bool expected;
  Ref code;  // where the program tests it
  int index;
};

// The thread's state at the end of a trace.
struct ThreadStateAtExit {
  graph::Ambient ambient;
  size_t popped_modes = 0;                  // how many of the initial torch-function modes were popped, from the top
  std::vector<Ref> pushed_modes;            // ... and the modes pushed in their place
  int autocast_nesting = 0;                 // relative to the beginning
  std::optional<fake::CastSettings> casts;  // if the trace has changed them
  bool clears_casts = false;  // the cached casts of an autocast scope that was exited before are dropped here
};

struct TraceResult {
  Ref value;            // null: the trace was cut or has stopped
  bool raises = false;  // the value is the exception that left the function
  Chain cut;            // the traced frames where the trace was to end; empty: it did not get there
  std::optional<report::Break> stopped;
  std::vector<BreakPoint> break_points;  // where it stopped, innermost frame first
  bool refuses = false;                  // error_on_graph_break(True) is in effect there
  bool wants_modes = false;              // it stopped because TraceOptions::has_modes was off
  Ref interrupted;                       // the exception that a signal handler raised meanwhile

  std::vector<SpeculatedCheck> checks;  // they are the first outputs of the graph
  ThreadStateAtExit exit;
  // torch flags: their values at the beginning, once the trace depends on them, and the groups that it depends on.
  std::optional<fake::Flags> flags_before;
  uint8_t flag_groups = 0;

  void set_stopped(report::Reason reason, std::string context) {
    stopped = report::Break{reason, std::move(context), {}, 0};
  }
  // The trace cannot be used, neither as a whole nor up to where it was cut.
  void discard() {
    value.reset();
    cut.clear();
  }
};

}  // namespace alternator::trace
