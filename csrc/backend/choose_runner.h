// The one place that decides how a graph runs, as far as the graph alone tells. What only the backend's own answer can
// tell comes back with that: see docs/backend.md.
#pragma once

#include "backend/graph_facts.h"

namespace alternator::backend {

// What a backend is asked once, when a function is compiled with it.
struct BackendTraits {
  bool has_compiler = true;         // otherwise it runs the recorded program, whatever it is
  bool is_torch_backend = false;    // it is built on AOTAutograd; where its code raises, eager raises the right error
  bool takes_whole_graphs = false;  // nodes in separate segments too
  // Its code writes to its inputs last, by torch operators: where it raises before that, nothing was mutated.
  bool writes_last = false;
};

enum class Runner : uint8_t {
  kRecorded,            // the recorded program, uncompiled
  kCompiled,            // what the backend makes of the whole graph
  kCompiledInSegments,  // ... of the segments between nodes that no compiler may see
};
const char* name_of(Runner runner);

struct RunnerChoice {
  Runner runner = Runner::kRecorded;
  std::string reason;  // why a backend that could compile it does not get it; empty: there is none
};
RunnerChoice choose_runner(const GraphFacts& facts, const BackendTraits& backend);

}  // namespace alternator::backend
