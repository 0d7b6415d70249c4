#include "graph/record/grad_mode_nodes.h"

namespace alternator::graph {

void GradSets::begin(bool mode) {
  if (!outermost_) outermost_ = mode;
}

void GradSets::open(bool previous, bool mode) {
  if (open_.empty()) outermost_ = previous;
  open_.push_back(previous);
  sets_.push_back({0, mode, previous, Setter::kEntered});
}

void GradSets::note(Setter setter, bool previous, bool mode, uint32_t next_node) {
  if (!outermost_) return;
  if (setter == Setter::kLeft && !open_.empty()) open_.pop_back();
  if (setter == Setter::kEnteredAgain && !sets_.empty()) {
    // `with torch.set_grad_enabled(mode):` sets it twice in a row.
    Set& made = sets_.back();
    if (made.setter == Setter::kCall && made.before_node == next_node && made.mode == mode) {
      made.setter = Setter::kEntered;
      open_.push_back(made.previous);
      return;
    }
  }
  if (setter == Setter::kEntered || setter == Setter::kEnteredAgain) open_.push_back(previous);
  sets_.push_back({next_node, mode, previous, setter});
}

void GradSets::finish(uint32_t next_node) {
  for (; !open_.empty(); open_.pop_back()) sets_.push_back({next_node, open_.back(), open_.back(), Setter::kLeft});
}

}  // namespace alternator::graph
