// One compiled way through a function: guards, graph, residual program.
#pragma once

#include "interpreter/control.h"

#include "graph/program.h"
#include "graph/replay.h"
#include "guards/program.h"
#include "replay/residual.h"
#include "report/event.h"

#include <memory>
#include <optional>

namespace alternator::dispatch {

class Entry {
 public:
  std::unique_ptr<guards::GuardProgram> guards;
  std::shared_ptr<graph::Program> program;
  std::unique_ptr<graph::Replay> eager;  // the recorded program itself; or
  Ref compiled;                          // ... what the backend made of it
  std::vector<size_t> inputs;            // positions of the graph's inputs among the needed values
  replay::Residual residual;
  Py_ssize_t output_count = 0;  // of the graph
  uint64_t hits = 0;
  // Why calls with these guards run as they are, where nothing could be captured.
  std::optional<report::Break> eager_because;

  bool has_graph() const { return program != nullptr && program->live_count() > 0; }
  // The rest of a call whose guards hold.
  Ref run(const std::vector<Ref>& values) const;
};

struct Backend {
  Ref callable;  // null: "eager"
};
// Traces a frame that has not begun. An entry without a graph says why in `eager_because`: what the trace read until
// then is guarded, so that only such calls are given up. Null: what it had read changed while it ran.
std::unique_ptr<Entry> trace_entry(cpython::Frame* frame, const Backend& backend, bool last_try);

}  // namespace alternator::dispatch
