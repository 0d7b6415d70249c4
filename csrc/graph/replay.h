// Runs a program on real tensors, without a backend: what `backend="eager"` means.
#pragma once

#include "graph/program.h"

#include <vector>

namespace alternator::graph {

class Replay {
 public:
  // The program must be finished and outlive the replay.
  explicit Replay(const Program& program);

  // `inputs` in the order of Program::inputs, in the state that the recording began in; that is also the state
  // afterwards, whatever happens. The result has the structure of what was recorded. An error carries the user's
  // lines of the node that failed.
  Ref run(PyObject* const* inputs, size_t count) const;

 private:
  friend class Run;

  // What happens around one live node.
  struct Stop {
    uint32_t node;
    std::vector<Step> before;
    std::vector<uint32_t> made;     // tensors that somebody uses later
    std::vector<uint32_t> expired;  // tensors that nobody uses after this node
  };
  const Program& program_;
  std::vector<Stop> stops_;
  std::vector<Step> after_;
};

}  // namespace alternator::graph
