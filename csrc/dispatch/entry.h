// One compiled way through a function: guards, graph, residual program.
#pragma once

#include "interpreter/control.h"

#include "graph/program.h"
#include "graph/replay.h"
#include "guards/program.h"
#include "replay/residual.h"
#include "report/event.h"

#include <memory>
#include <variant>

namespace alternator::dispatch {

class Entry {
 public:
  std::unique_ptr<guards::GuardProgram> guards;
  std::shared_ptr<graph::Program> program;
  std::unique_ptr<graph::Replay> eager;  // the recorded program itself; or
  Ref compiled;                          // ... what the backend made of it
  std::vector<size_t> inputs;            // positions of the graph's inputs among the needed values
  replay::Residual residual;
  uint64_t hits = 0;

  bool has_graph() const { return program != nullptr && program->live_count() > 0; }
  // The rest of a call whose guards hold.
  Ref run(const std::vector<Ref>& values) const;
};

// Traces a frame that has not begun. An entry, or why there is none.
struct Backend {
  Ref callable;  // null: "eager"
};
std::variant<std::unique_ptr<Entry>, report::Break> trace_entry(cpython::Frame* frame, const Backend& backend);

}  // namespace alternator::dispatch
