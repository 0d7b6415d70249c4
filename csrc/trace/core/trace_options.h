// How one trace is made: its inputs besides the frames. An entry keeps them to retrace the same path.
#pragma once

#include "graph/record/recorder.h"
#include "lift/lifting/dynamism.h"

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

namespace alternator::trace {

struct TraceOptions {
  bool may_break = true;
  bool only_whole = false;    // a trace that stops is of no use: it is not rerun to be cut
  bool may_speculate = true;  // on data checks that only raise: see speculated_checks.h
  // The default-device modes on the thread's mode stack when the trace begins belong to the program, which may pop
  // them.
  bool has_modes = false;
  bool separates = false;       // failures that may be caught and irreversible mutations go to separate graphs
  bool numpy_constants = true;  // numpy scalars are constants, not inputs
  graph::Recorder::Captured captured = {};  // what becomes an unbacked symbol
  // Sources that are not specialized on (lift::Lifter); null: none.
  std::shared_ptr<const std::unordered_set<std::string>> unspecialized;
  std::shared_ptr<const lift::Dynamism> dynamism;  // what becomes a symbol; null: nothing
  // Values of the symbols, by number, that a trace is verified with; null: those of the call.
  std::shared_ptr<const std::vector<shapes::Register>> hints;
  std::optional<uint32_t> until_node;  // the trace stops at the instruction that records this node
};

}  // namespace alternator::trace
