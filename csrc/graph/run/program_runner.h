// Runs a program on real tensors, without a backend: `backend="eager"`.
#pragma once

#include "fake/fake.h"
#include "graph/record/program.h"

#include <c10/util/SmallVector.h>

#include <vector>

namespace alternator::graph {

class Run;

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
  friend class Run;
  void check_count(size_t count) const;
  void run_nodes(Run& run, Failure* failure = nullptr) const;
  friend Ref value_now(const Program& program, uint32_t tensor, const fake::Session& session);
  friend bool compute_again(const Program& program, const std::vector<uint32_t>& wanted, Failure* failure);

  // The steps around one live node.
  struct Stop {
    uint32_t node;
    std::vector<Step> before;
    std::vector<uint32_t> made;     // tensors that are used later
    std::vector<uint32_t> expired;  // tensors that are not used after this node
  };
  const Program& program_;
  std::vector<Stop> stops_;
  std::vector<Step> after_;
};

// The value of one tensor of a program that is still being recorded: the nodes it depends on are run on the real
// tensors of the inputs. Null: something was mutated meanwhile, or random numbers would have to be drawn for it. No
// session may be active.
Ref value_now(const Program& program, uint32_t tensor, const fake::Session& session);

}  // namespace alternator::graph
