// Names of FX nodes, as torch.fx itself would create them: linear, linear_1, ..., sum_1 (a builtin), l_x_.
#pragma once

#include "py/error.h"

#include <string>
#include <unordered_map>
#include <unordered_set>

namespace alternator::graph {

class FxNames {
 public:
  FxNames();

  // A new name derived from `candidate`.
  std::string create(std::string candidate);
  // How often each base was numbered: torch.fx's namespace needs it to create further names.
  const std::unordered_map<std::string, uint32_t>& counts() const { return counts_; }

  // "L['x'].weight" -> "L_x_weight": the name of a placeholder.
  static std::string identifier(std::string_view label);
  // "layerNorm" -> "layer_norm"
  static std::string snake_case(std::string_view name);

 private:
  bool is_illegal(const std::string& name) const;

  Ref illegal_;  // keywords and builtins
  std::unordered_set<std::string> used_;
  std::unordered_map<std::string, uint32_t> counts_;
};

}  // namespace alternator::graph
