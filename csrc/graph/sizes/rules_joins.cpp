// Functions of several tensors: cat, stack, broadcast_tensors, meshgrid.
#include "graph/sizes/rule_call.h"

#include <algorithm>

namespace alternator::graph {

using shapes::Expression;

static Sizes joined(RuleCall& call, const std::vector<Sizes>& all, size_t d) {
  const size_t rank = call.rank();
  RuleCall::check(d < rank);
  Sizes sizes;
  for (const Sizes& one : all) {
    if (one.size() != rank) {
      RuleCall::check(one.size() == 1);  // an empty vector, which is joined with anything
    } else if (sizes.empty()) {
      sizes = one;
    } else {
      sizes[d] = call.environment().add(sizes[d], one[d]);
    }
  }
  return sizes;
}

static Sizes stacked(RuleCall& call, const std::vector<Sizes>& all, size_t d) {
  RuleCall::check(!all.empty());
  Sizes sizes = all[0];
  for (const Sizes& one : all) {
    RuleCall::check(one.size() == sizes.size());
  }
  RuleCall::check(d <= sizes.size());
  sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(d), call.constant(static_cast<int64_t>(all.size())));
  return sizes;
}

Sizes cat(RuleCall& call) {
  const std::vector<Sizes> all = call.tensors(0, "tensors");
  return joined(call, all, call.dimension(1, "dim|axis", call.rank(), 0));
}

Sizes stack(RuleCall& call) {
  const std::vector<Sizes> all = call.tensors(0, "tensors");
  return stacked(call, all, call.dimension(1, "dim|axis", call.rank(), 0));
}

static std::vector<Sizes> at_least(RuleCall& call, std::vector<Sizes> all, size_t rank) {
  for (Sizes& one : all) {
    while (one.size() < rank) one.insert(one.begin(), call.constant(1));
  }
  return all;
}

Sizes hstack(RuleCall& call) {
  const std::vector<Sizes> all = at_least(call, call.tensors(0, "tensors"), 1);
  return joined(call, all, call.rank() == 1 ? 0 : 1);
}

Sizes vstack(RuleCall& call) { return joined(call, at_least(call, call.tensors(0, "tensors"), 2), 0); }

// Vectors are the columns.
Sizes column_stack(RuleCall& call) {
  std::vector<Sizes> all = call.tensors(0, "tensors");
  for (Sizes& one : all) {
    while (one.size() < 2) one.push_back(call.constant(1));
  }
  return joined(call, all, 1);
}

Sizes dstack(RuleCall& call) {
  std::vector<Sizes> all = at_least(call, call.tensors(0, "tensors"), 1);
  for (Sizes& one : all) {
    if (one.size() == 1) one.insert(one.begin(), call.constant(1));
    if (one.size() == 2) one.push_back(call.constant(1));
  }
  return joined(call, all, 2);
}

// broadcast_tensors(*tensors): those that have all sizes already are returned themselves.
Sizes broadcast_tensors(RuleCall& call) {
  const std::vector<Sizes> all = call.is_sequence_at(0, "tensors") ? call.tensors(0, "tensors") : call.all_tensors();
  const Sizes sizes = call.broadcast(all);
  if (call.position() != RuleCall::kWholeResult) return sizes;
  for (const Sizes& one : all) {
    for (size_t d = 0; d < one.size(); d++) {
      (void)call.holds(call.environment().equal(one[d], sizes[sizes.size() - one.size() + d]));
    }
  }
  return sizes;
}

// meshgrid(*tensors, indexing="ij"|"xy")
Sizes meshgrid(RuleCall& call) {
  std::vector<Sizes> all;
  if (call.is_sequence_at(0, "tensors")) {
    all = call.tensors(0, "tensors");
  } else {
    for (uint32_t i = 0; i < call.positional(); i++) all.push_back(call.sizes(i, {}));
  }
  Sizes sizes;
  for (const Sizes& one : all) {
    RuleCall::check(one.size() <= 1);
    sizes.push_back(one.empty() ? call.constant(1) : one[0]);
  }
  const std::optional<Value> indexing = call.find(RuleCall::kKeywordOnly, "indexing");
  if (indexing && sizes.size() >= 2) {
    PyObject* text = call.object(*indexing).get();
    RuleCall::check(indexing->kind() == ValueKind::Object && PyUnicode_Check(text));
    if (PyUnicode_CompareWithASCIIString(text, "xy") == 0) std::swap(sizes[0], sizes[1]);
  }
  return sizes;
}

// torch.autograd.grad(outputs, inputs): those of each input.
Sizes gradients(RuleCall& call) {
  const Value inputs = call.require(1, "inputs");
  const auto position = static_cast<size_t>(call.position());
  const std::vector<Value> all = inputs.is_tensor() ? std::vector{inputs} : call.children(inputs);
  RuleCall::check(position < all.size());
  call.ignore_rest();
  const Sizes sizes = call.sizes_of(all[position]);
  RuleCall::check(sizes.size() == call.rank());  // not of a batch of gradients
  return sizes;
}

}  // namespace alternator::graph
