// Runs recorded nodes on real tensors, one after the other.
#pragma once

#include "fake/fake.h"
#include "graph/record/program.h"

#include <c10/util/SmallVector.h>

#include <vector>

namespace alternator::graph {

// One node and the steps around it.
struct NodeStop {
  uint32_t node;
  std::vector<Step> before;
  std::vector<uint32_t> made;     // tensors that are used later
  std::vector<uint32_t> expired;  // tensors that are not used after this node
};

// One run: the results of the nodes so far.
class Run {
 public:
  Run(const Program& program, PyObject* const* inputs);
  Run(const Program& program, std::vector<Ref> tensors);

  void set(uint32_t tensor, Ref value) { tensors_[tensor] = std::move(value); }
  const Ref& operator[](uint32_t tensor) const { return tensors_[tensor]; }
  std::vector<Ref> take() {
    return {std::make_move_iterator(tensors_.begin()), std::make_move_iterator(tensors_.end())};
  }

  void step(const std::vector<Step>& steps);
  // `whole`: also the parts of its result that the program does not use.
  void node(const NodeStop& stop, bool whole = false);
  Ref build(Value value) const;
  // A node failed. The error gets the user's lines, innermost first as if the frames were unwound, and the thread's
  // state is restored.
  void unwind(uint32_t failed) noexcept;

 private:
  // Borrowed from the program or from this run.
  PyObject* leaf(Value value) const;

  const Program& program_;
  c10::SmallVector<Ref, 16> tensors_;
  std::vector<Ref> open_;
};

// The value of one tensor of a program that is still being recorded: the nodes it depends on are run on the real
// tensors of the inputs. Null: something was mutated meanwhile, or random numbers would have to be drawn for it. No
// session may be active.
Ref value_now(const Program& program, uint32_t tensor, const fake::Session& session);

}  // namespace alternator::graph
