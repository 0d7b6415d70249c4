// Functions that make tensors of given sizes.
#include "graph/sizes/rule_call.h"

namespace alternator::graph {

using shapes::Expression;

// zeros(*sizes)
Sizes make(RuleCall& call) { return call.numbers(0, "size"); }

// full(size, value), new_full(x, size, value)
Sizes make_full(RuleCall& call) {
  const Sizes sizes = call.numbers(0, "size");
  call.ignore(1, "fill_value");
  return sizes;
}

// x.new_zeros(*sizes)
Sizes make_like(RuleCall& call) {
  call.ignore(0, "self");
  return call.numbers(1, "size");
}

Sizes make_full_like(RuleCall& call) {
  call.ignore(0, "self");
  RuleCall::check(call.is_sequence_at(1, "size"));
  call.ignore(2, "fill_value");
  Sizes sizes;
  for (const Value item : call.items(1, "size")) sizes.push_back(call.number_of(item));
  return sizes;
}

// randint(high, size), randint(low, high, size)
Sizes randint(RuleCall& call) {
  for (uint32_t i = 0; i < 3; i++) {
    if (!call.is_sequence_at(i, "size")) continue;
    const Sizes sizes = call.numbers(i, "size");
    for (uint32_t before = 0; before < i; before++) call.ignore(before, {});
    call.ignore(RuleCall::kKeywordOnly, "low");
    call.ignore(RuleCall::kKeywordOnly, "high");
    return sizes;
  }
  throw NoRule();
}

// arange(end), arange(start, end, step) of ints
Sizes arange(RuleCall& call) {
  std::optional<Value> first = call.find(0, "start"), last = call.find(1, "end");
  if (!last) std::swap(first, last);
  RuleCall::check(last.has_value());
  const Expression start = first ? call.number_of(*first) : call.constant(0), end = call.number_of(*last);
  const int64_t step = call.integer(2, "step", 1);
  RuleCall::check(step != 0 && step > -INT32_MAX);
  shapes::ShapeEnvironment& environment = call.environment();
  const Expression distance = step > 0 ? environment.subtract(end, start) : environment.subtract(start, end);
  return Sizes{call.ceil_divide(distance, call.constant(step > 0 ? step : -step))};
}

// histc(x, bins, min, max)
Sizes histc(RuleCall& call) {
  call.ignore(0, "input|self");
  const std::optional<Value> bins = call.find(1, "bins");
  call.ignore(2, "min");
  call.ignore(3, "max");
  return Sizes{bins ? call.number_of(*bins) : call.constant(100)};
}

// linspace(start, end, steps)
Sizes linspace(RuleCall& call) {
  call.ignore(0, "start");
  call.ignore(1, "end");
  const Expression steps = call.number_of(call.require(2, "steps"));
  call.ignore(3, "base");
  return Sizes{steps};
}

Sizes eye(RuleCall& call) {
  const Expression rows = call.number_of(call.require(0, "n"));
  const std::optional<Value> columns = call.find(1, "m");
  return Sizes{rows, columns ? call.number_of(*columns) : rows};
}

Sizes randperm(RuleCall& call) { return Sizes{call.number_of(call.require(0, "n"))}; }

}  // namespace alternator::graph
