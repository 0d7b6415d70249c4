// Pointwise functions, and whatever else keeps the sizes of its first argument.
#include "graph/sizes/rule_call.h"

namespace alternator::graph {

using shapes::Expression;

Sizes same_as_first(RuleCall& call) {
  const Sizes sizes = call.sizes(0, "input|self");
  call.ignore_rest();
  return sizes;
}

// ... whatever the layout of the result is.
Sizes same_sizes(RuleCall& call) { return same_as_first(call); }

Sizes same_as_second(RuleCall& call) {
  call.ignore(0, "input|self");
  return call.sizes(1, "other|input");
}

Sizes broadcast_all(RuleCall& call) { return call.broadcast(call.all_tensors()); }

// where(condition, x, y); where(condition) is about data.
Sizes broadcast_three(RuleCall& call) {
  RuleCall::check(call.find(1, "input|self|other").has_value() && call.find(2, "other").has_value());
  return broadcast_all(call);
}

// max(x) is a number, max(x, y) a tensor, max(x, dim) a pair.
Sizes extreme(RuleCall& call) { return call.is_tensor_at(1, "other") ? broadcast_all(call) : reduce_one(call); }

Sizes without(const Sizes& sizes, size_t dimension) {
  RuleCall::check(dimension < sizes.size());
  Sizes rest = sizes;
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(dimension));
  return rest;
}

// The loss of each element.
Sizes loss_of_each(RuleCall& call) {
  const Sizes input = call.sizes(0, "input|self"), target = call.sizes(1, "target");
  call.ignore_rest();
  return call.broadcast(input, target);
}

// The loss of each sample: classes are in dimension 1, or in the only one.
Sizes loss_of_classes(RuleCall& call) {
  const Sizes input = call.sizes(0, "input|self");
  call.ignore_rest();
  RuleCall::check(!input.empty());
  return without(input, input.size() == 1 ? 0 : 1);
}

Sizes glu(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input|self");
  const size_t d = call.dimension(1, "dim", sizes.size(), -1);
  RuleCall::check(d < sizes.size());
  sizes[d] = call.environment().floor_divide(sizes[d], call.constant(2));
  return sizes;
}

// cosine_similarity(x, y, dim)
Sizes cosine_similarity(RuleCall& call) {
  const Sizes sizes = call.broadcast(call.sizes(0, "x1"), call.sizes(1, "x2"));
  const size_t d = call.dimension(2, "dim", sizes.size(), 1);
  call.ignore(3, "eps");
  return without(sizes, d);
}

// pairwise_distance(x, y, p, eps, keepdim)
Sizes pairwise_distance(RuleCall& call) {
  Sizes sizes = call.broadcast(call.sizes(0, "x1"), call.sizes(1, "x2"));
  call.ignore(2, "p");
  call.ignore(3, "eps");
  const bool keeps = call.flag(4, "keepdim", false);
  RuleCall::check(!sizes.empty());
  sizes.pop_back();
  if (keeps) sizes.push_back(call.constant(1));
  return sizes;
}

// embedding(indices, weight)
Sizes embedding(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input");
  const Sizes weight = call.sizes(1, "weight");
  call.ignore_rest();
  RuleCall::check(weight.size() == 2);
  sizes.push_back(weight[1]);
  return sizes;
}

Sizes embedding_by_weight(RuleCall& call) {
  const Sizes weight = call.sizes(0, "weight");
  Sizes sizes = call.sizes(1, "indices");
  call.ignore_rest();
  RuleCall::check(weight.size() == 2);
  sizes.push_back(weight[1]);
  return sizes;
}

Sizes one_hot(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input|self|tensor");
  const Expression classes = call.number_of(call.require(1, "num_classes"));
  RuleCall::check(!call.is_negative(classes));
  sizes.push_back(classes);
  return sizes;
}

}  // namespace alternator::graph
