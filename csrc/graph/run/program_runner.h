// Runs a program on real tensors, without a backend: `backend="eager"`.
#pragma once

#include "graph/record/node_run.h"

#include <c10/util/SmallVector.h>

#include <vector>

namespace alternator::graph {

// Where a run failed, and the tensors that it had computed until then, by index: null, if they had no further use.
struct Failure {
  uint32_t node = kNowhere;
  std::vector<Ref> tensors;
  Ref traceback;  // of the error as the node raised it, without the user's lines; null: none
};

// Recomputes tensors that such a run has computed and dropped, as far as the result is the same: nothing they depend on
// was mutated since, and no alias of them is alive. The thread's state is that of the program's beginning. False: not
// all of `wanted` could be recomputed.
bool compute_again(const Program& program, const std::vector<uint32_t>& wanted, Failure* failure);

class Replay {
 public:
  // The program must be finished and outlive the replay.
  explicit Replay(const Program& program);

  // `inputs` are in the order of Program::inputs, and the thread is in the state that the recording began in; that is
  // also the state afterwards, even on failure. The result has the structure of the recorded one. An error carries the
  // user's lines of the node that failed.
  Ref run(PyObject* const* inputs, size_t count) const;
  // The same where the recorded result is a list: its elements.
  using Results = c10::SmallVector<Ref, 4>;
  void run_each(PyObject* const* inputs, size_t count, Results* results, Failure* failure = nullptr) const;

 private:
  void check_count(size_t count) const;
  void run_nodes(Run& run, Failure* failure = nullptr) const;

  const Program& program_;
  std::vector<NodeStop> stops_;
  std::vector<Step> after_;
};

}  // namespace alternator::graph
