// Reductions, and results whose size along a dimension is an argument.
#include "graph/sizes/rule_call.h"

#include <algorithm>

namespace alternator::graph {

using shapes::Expression;

static Sizes reduced(RuleCall& call, const Sizes& sizes, const std::vector<size_t>& dimensions, bool keeps) {
  Sizes left;
  for (size_t d = 0; d < sizes.size(); d++) {
    if (std::find(dimensions.begin(), dimensions.end(), d) == dimensions.end()) {
      left.push_back(sizes[d]);
    } else if (keeps) {
      left.push_back(call.constant(1));
    }
  }
  return left;
}

// Of all dimensions where none is given.
static Sizes reduce_at(RuleCall& call, uint32_t position) {
  const Sizes sizes = call.sizes(0, "input|self|x|A");
  std::optional<std::vector<size_t>> dimensions = call.dimensions(position, "dim|axis", sizes.size());
  const bool keeps = call.flag(position + 1, "keepdim|keepdims", false);
  RuleCall::check(!dimensions || !dimensions->empty());
  if (!dimensions) {
    dimensions.emplace();
    for (size_t d = 0; d < sizes.size(); d++) dimensions->push_back(d);
  }
  call.ignore(position + 2, "dtype");
  return reduced(call, sizes, *dimensions, keeps);
}

// sum(x, dim, keepdim)
Sizes reduce(RuleCall& call) { return reduce_at(call, 1); }

// max(x, dim, keepdim): dim is an int.
Sizes reduce_one(RuleCall& call) { return reduce_at(call, 1); }

// norm(x, p, dim, keepdim)
Sizes reduce_second(RuleCall& call) {
  call.ignore(1, "p|ord");
  return reduce_at(call, 2);
}

// kthvalue(x, k, dim=-1, keepdim)
Sizes kthvalue(RuleCall& call) {
  const Sizes sizes = call.sizes(0, "input|self");
  call.ignore(1, "k");
  const size_t d = call.dimension(2, "dim", sizes.size(), -1);
  return reduced(call, sizes, {d}, call.flag(3, "keepdim", false));
}

// median(x, dim=-1) without a dim is a number; mode(x) takes the last dimension.
Sizes mode(RuleCall& call) {
  const Sizes sizes = call.sizes(0, "input|self");
  const size_t d = call.dimension(1, "dim", sizes.size(), -1);
  return reduced(call, sizes, {d}, call.flag(2, "keepdim", false));
}

// std(x, dim, unbiased, keepdim), where a bool for dim is `unbiased`.
Sizes deviation(RuleCall& call) {
  const std::optional<Value> second = call.find(1, "dim|axis");
  RuleCall::check(!second || !call.plain_bool(*second));
  const Sizes sizes = call.sizes(0, "input|self");
  std::optional<std::vector<size_t>> dimensions = call.dimensions(1, "dim|axis", sizes.size());
  call.ignore(2, "unbiased");
  const bool keeps = call.flag(3, "keepdim", false);
  RuleCall::check(!dimensions || !dimensions->empty());
  if (!dimensions) {
    dimensions.emplace();
    for (size_t d = 0; d < sizes.size(); d++) dimensions->push_back(d);
  }
  return reduced(call, sizes, *dimensions, keeps);
}

// topk(x, k, dim)
Sizes topk(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input|self");
  const Expression k = call.number_of(call.require(1, "k"));
  const size_t d = call.dimension(2, "dim", sizes.size(), -1);
  call.ignore(3, "largest");
  call.ignore(4, "sorted");
  RuleCall::check(d < sizes.size());
  sizes[d] = k;
  return sizes;
}

// multinomial(x, n)
Sizes multinomial(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input|self");
  const Expression count = call.number_of(call.require(1, "num_samples"));
  call.ignore(2, "replacement");
  RuleCall::check(!sizes.empty());
  sizes.back() = count;
  return sizes;
}

// Fourier transforms (x, n, dim) of one dimension.
static Sizes transformed(RuleCall& call, bool halves, bool doubles) {
  Sizes sizes = call.sizes(0, "input");
  const std::optional<Value> wanted = call.find(1, "n");
  const size_t d = call.dimension(2, "dim", sizes.size(), -1);
  call.ignore(3, "norm");
  RuleCall::check(d < sizes.size());
  shapes::ShapeEnvironment& environment = call.environment();
  if (wanted) {
    sizes[d] = call.number_of(*wanted);
  } else if (doubles) {
    sizes[d] = environment.scale(environment.subtract(sizes[d], call.constant(1)), 2);
  }
  if (halves) sizes[d] = environment.add(environment.floor_divide(sizes[d], call.constant(2)), call.constant(1));
  return sizes;
}

Sizes fft(RuleCall& call) { return transformed(call, false, false); }
Sizes rfft(RuleCall& call) { return transformed(call, true, false); }
Sizes irfft(RuleCall& call) { return transformed(call, false, true); }

// fftn(x, s, dim)
Sizes fft_of_same_size(RuleCall& call) {
  RuleCall::check(!call.find(1, "s"));
  return same_as_first(call);
}

// diff(x, n=1, dim=-1)
Sizes diff(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input|self");
  const int64_t n = call.integer(1, "n", 1);
  const size_t d = call.dimension(2, "dim", sizes.size(), -1);
  RuleCall::check(d < sizes.size() && n >= 0);
  call.require(call.environment().less_equal(call.constant(n), sizes[d]));
  sizes[d] = call.environment().subtract(sizes[d], call.constant(n));
  return sizes;
}

}  // namespace alternator::graph
