// Numbers of an exported graph: nodes that compute expressions from the placeholders of symbols.
#pragma once

#include "graph/export/fx_graph.h"
#include "shapes/expression.h"

#include <unordered_map>

namespace alternator::graph {

class FxNumbers {
 public:
  explicit FxNumbers(FxGraph& graph) : graph_(graph) {}

  void define(shapes::Expression expression, Ref node) { known_[expression] = std::move(node); }
  // A node, or an int: what an argument of other nodes is. Throws RecordError if it has no counterpart.
  Ref of(shapes::Expression expression);

 private:
  Ref build(shapes::Expression expression);
  Ref call(const char* module, const char* name, Ref first, Ref second);

  FxGraph& graph_;
  std::unordered_map<shapes::Expression, Ref> known_;
};

}  // namespace alternator::graph
