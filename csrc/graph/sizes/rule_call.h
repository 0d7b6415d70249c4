// A recorded call as the rules of size_rules.def see it: its arguments and the sizes of its tensors.
//
// Fails closed: what a rule does not expect ends it (NoRule), and so does an argument that no rule asked for, unless
// its name is among those that never matter to sizes.
#pragma once

#include "fake/backed_symbols.h"
#include "graph/sizes/size_solver.h"
#include "shapes/environment.h"

#include <bitset>
#include <optional>
#include <source_location>
#include <string_view>
#include <vector>

namespace alternator::graph {

// Thrown: the call is none that the rule understands.
struct NoRule {};

class RuleCall {
 public:
  // For what its whole result tells.
  RuleCall(SizeSolver& solver, const Node& node, int64_t count) : solver_(solver), node_(node), count_(count) {}
  // For the sizes of one tensor of it.
  RuleCall(SizeSolver& solver, const Node& node, uint32_t tensor);

  // ---- the result
  static constexpr int64_t kWholeResult = -1;
  int64_t position() const { return position_; }  // in the tuple of results
  int64_t count() const { return count_; }        // of that tuple
  size_t rank() const { return rank_; }           // of the tensor

  // ---- arguments, by position or keyword ("dim|axis"); kKeywordOnly: by keyword only
  static constexpr uint32_t kKeywordOnly = UINT32_MAX;
  // Nothing: it is not given, or None.
  std::optional<Value> find(uint32_t position, std::string_view names);
  Value require(uint32_t position, std::string_view names);
  Value positional_argument(uint32_t position);  // may be None
  bool is_tensor_at(uint32_t position, std::string_view names);
  bool is_sequence_at(uint32_t position, std::string_view names);
  std::optional<uint32_t> find_tensor(uint32_t position, std::string_view names);
  Sizes sizes(uint32_t position, std::string_view names);
  // An int of which the value matters: a symbol is specialized on.
  int64_t integer(uint32_t position, std::string_view names, std::optional<int64_t> otherwise = {});
  bool flag(uint32_t position, std::string_view names, bool otherwise);
  // A dimension of a tensor of this rank, not negative.
  size_t dimension(uint32_t position, std::string_view names, size_t rank, std::optional<int64_t> otherwise = {});
  // Some of them: an int, or a sequence of ints. Nothing: not given.
  std::optional<std::vector<size_t>> dimensions(uint32_t position, std::string_view names, size_t rank);
  // Numbers: a sequence, or all positional arguments from there on; one number counts as a sequence of one.
  Sizes numbers(uint32_t position, std::string_view names);
  // The values of a sequence.
  std::vector<Value> items(uint32_t position, std::string_view names);
  // The tensors of a sequence.
  std::vector<Sizes> tensors(uint32_t position, std::string_view names);
  // All tensors that are arguments themselves.
  std::vector<Sizes> all_tensors();
  // Whatever they are, they say nothing about sizes.
  void ignore(uint32_t position, std::string_view names) { (void)find(position, names); }
  void ignore_rest() { understood_.set(); }
  // Whether every argument was understood.
  bool is_understood() const;
  uint32_t positional() const { return node_.positional; }

  // ---- values
  const at::Tensor* tensor_of(Value value) const;
  Sizes sizes_of(Value value);
  shapes::Expression number_of(Value value);
  std::optional<int64_t> fixed_int(Value value);
  std::optional<bool> plain_bool(Value value) const;
  bool is_none(Value value) const;
  std::vector<Value> children(Value value) const;
  const Arena& arena() const { return solver_.program().arena; }
  Borrowed object(Value value) const { return solver_.program().arena.object(value); }
  static size_t wrap(int64_t dimension, size_t rank);

  // ---- expressions
  shapes::ShapeEnvironment& environment() { return solver_.environment(); }
  shapes::Expression constant(int64_t value) { return environment().integer(value); }
  // Whether it holds in this call, which is guarded. `at`: the rule, of which size_switches.def has the name.
  using At = std::source_location;
  bool holds(shapes::Expression condition, const At& at = At::current());
  // The value of this call, which is guarded.
  int64_t fixed(shapes::Expression number, const At& at = At::current());
  void require(shapes::Expression condition, const At& at = At::current()) { check(holds(condition, at)); }
  static void check(bool is_as_expected) {
    if (!is_as_expected) throw NoRule();
  }
  // A number that some functions take for something else where it is negative.
  bool is_negative(shapes::Expression number, const At& at = At::current()) {
    return holds(environment().less(number, constant(0)), at);
  }
  shapes::Expression product(const Sizes& sizes);
  shapes::Expression ceil_divide(shapes::Expression a, shapes::Expression b);
  shapes::Expression broadcast(shapes::Expression a, shapes::Expression b);
  Sizes broadcast(const Sizes& a, const Sizes& b);
  Sizes broadcast(const std::vector<Sizes>& all);
  // The two are equal in this call, as it could not succeed otherwise.
  shapes::Expression same(shapes::Expression a, shapes::Expression b, const At& at = At::current());
  // Sizes of which one may be -1, for `elements` elements.
  Sizes inferred(Sizes wanted, shapes::Expression elements);
  // A bound of a slice, from 0 to the size.
  shapes::Expression clamped(shapes::Expression bound, shapes::Expression size);
  // The length of start:stop:step on a dimension, as torch computes it. Null: not given.
  shapes::Expression slice_length(shapes::Expression size, shapes::Expression start, shapes::Expression stop,
                                  int64_t step);

  // A rule that only rearranges dimensions then does so to these: `instead` of the sizes of that tensor.
  void replace_sizes(uint32_t tensor, const Sizes* instead) {
    replaced_ = tensor;
    instead_ = instead;
  }

 private:
  SizeSolver& solver_;
  const Node& node_;
  int64_t position_ = kWholeResult;
  int64_t count_ = 0;
  size_t rank_ = 0;
  std::bitset<256> understood_;
  uint32_t replaced_ = kNowhere;
  const Sizes* instead_ = nullptr;
};

using Rule = Sizes (*)(RuleCall& call);
// Null: there is none.
Rule rule_of(const Node& node);

#define ALT_RULE(rule, ...) Sizes rule(RuleCall& call);
#include "graph/sizes/size_rules.def"
#undef ALT_RULE

// What several rules make use of.
Sizes same_as_first(RuleCall& call);
Sizes without(const Sizes& sizes, size_t dimension);
// The parts of split, chunk, tensor_split: their number is guarded, and the size of the one at `position`, unless that
// is kWholeResult, is returned.
shapes::Expression part_of_equal(RuleCall& call, shapes::Expression size, shapes::Expression part, int64_t count,
                                 int64_t position);

}  // namespace alternator::graph
