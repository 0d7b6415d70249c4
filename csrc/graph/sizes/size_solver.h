// The sizes of a recording's tensors as expressions over its backed symbols.
//
// Computed when something reads them, by walking the recorded calls back: a rule (size_rules.def) gives the sizes of a
// call's results from those of its arguments. What has no rule specializes: the sizes that it depends on are guarded to
// be those of this call.
#pragma once

#include "graph/record/program.h"

#include <c10/util/SmallVector.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace alternator::graph {

using Sizes = c10::SmallVector<shapes::Expression, 6>;

class LayoutSolver;

class SizeSolver {
 public:
  // The program may still be recorded; `node` below may be one that is not in it yet.
  SizeSolver(Program& program, fake::BackedSymbols& symbols);
  ~SizeSolver();
  SizeSolver(const SizeSolver&) = delete;
  SizeSolver& operator=(const SizeSolver&) = delete;

  // One expression for each dimension, whose hints are the sizes of the fake. Specializes where there is no rule.
  Sizes sizes_of(uint32_t tensor);
  // No torch.SymInt is among them.
  static bool has_plain_sizes(const at::Tensor& fake);
  // The value of a number among a call's arguments: a constant int, or an expression. Null: it is no int.
  shapes::Expression number_of(Value value);

  // The sizes of a tensor, from elsewhere. False: they are not those of its fake.
  bool know(uint32_t tensor, const Sizes& sizes);
  // Runs Python code that the trace must not see.
  std::function<Ref(const std::function<Ref()>& code)> eagerly;

  // Guards the sizes and strides of everything that the tensor's sizes depend on.
  void specialize(uint32_t tensor);
  // ... that the arguments of a call depend on.
  void specialize_arguments(const Node& node);

  // After a call that has given its first argument other sizes and strides (x.t_()): false if they do not follow from
  // those before it.
  bool note_restrided(const Node& node);
  bool is_restrided(uint32_t tensor) const;

  LayoutSolver& layouts() { return *layouts_; }
  const LayoutSolver& layouts() const { return *layouts_; }

  // Calls visit(tensor, its sizes) for all sizes that were computed.
  template <class Visit>
  void each_known(Visit&& visit) const {
    for (size_t tensor = 0; tensor < known_.size(); tensor++)
      if (known_[tensor]) visit(static_cast<uint32_t>(tensor), *known_[tensor]);
  }

  Program& program() { return program_; }
  fake::BackedSymbols& symbols() { return symbols_; }
  shapes::ShapeEnvironment& environment() { return symbols_.environment; }

 private:
  std::optional<Sizes> solve(uint32_t tensor);
  Sizes constants_of(uint32_t tensor);
  bool is_as_hinted(uint32_t tensor, const Sizes& sizes) const;

  Program& program_;
  fake::BackedSymbols& symbols_;
  std::vector<std::optional<Sizes>> known_;  // by tensor
  std::vector<uint32_t> restrided_;
  uint32_t restriding_ = kNowhere;  // its sizes are those before the call
  std::unique_ptr<LayoutSolver> layouts_;
  int depth_ = 0;  // of calls that are walked back
};

}  // namespace alternator::graph
