// Runs a program on real tensors, without a backend: what `backend="eager"` means.
#pragma once

#include "fake/fake.h"
#include "graph/record/program.h"

#include <c10/util/SmallVector.h>

#include <vector>

namespace alternator::graph {

class Run;

// Where a run failed, and what it had computed until then, by number: null, if nobody was to use it any more.
struct Failure {
  uint32_t node = kNowhere;
  std::vector<Ref> tensors;
  Ref traceback;  // of the error as the node raised it, without the user's lines; null: none
};

// Computes again what such a run has computed and dropped, as far as that gives the same: nothing of it was written
// since, and nobody has it under another name. The thread's state is that of the program's beginning. False: not all of
// `wanted` could be had.
bool compute_again(const Program& program, const std::vector<uint32_t>& wanted, Failure* failure);

class Replay {
 public:
  // The program must be finished and outlive the replay.
  explicit Replay(const Program& program);

  // `inputs` in the order of Program::inputs, in the state that the recording began in; that is also the state
  // afterwards, whatever happens. The result has the structure of what was recorded. An error carries the user's
  // lines of the node that failed.
  Ref run(PyObject* const* inputs, size_t count) const;
  // The same where what was recorded is a list: its elements.
  using Results = c10::SmallVector<Ref, 4>;
  void run_each(PyObject* const* inputs, size_t count, Results* results, Failure* failure = nullptr) const;

 private:
  friend class Run;
  void check_count(size_t count) const;
  void run_nodes(Run& run, Failure* failure = nullptr) const;
  friend Ref value_now(const Program& program, uint32_t tensor, const fake::Session& session);
  friend bool compute_again(const Program& program, const std::vector<uint32_t>& wanted, Failure* failure);

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

// The value of one tensor of a program that is still being recorded: what it takes is run on the tensors that the
// inputs stand in for. Null: something was written meanwhile, or random numbers would have to be drawn for it. No
// session may be active.
Ref value_now(const Program& program, uint32_t tensor, const fake::Session& session);

}  // namespace alternator::graph
