#include "graph/sizes/layout_solver.h"

#include "graph/sizes/rule_call.h"
#include "graph/sizes/size_rules.h"

#include <algorithm>
#include <numeric>

namespace alternator::graph {

using shapes::Expression;

bool share_memory(const at::Tensor& one, const at::Tensor& other) {
  return one.has_storage() && other.has_storage() &&
         one.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl();
}

namespace {

constexpr int kDeepest = 500;

bool is_one_of(Rule rule, std::initializer_list<Rule> rules) {
  return std::find(rules.begin(), rules.end(), rule) != rules.end();
}

// x[...] with ints, slices, None and an ellipsis, as torch takes it apart.
class ViewIndexing {
 public:
  ViewIndexing(RuleCall& call, const Sizes& sizes, const Layout& base) : call_(call), sizes_(sizes), base_(base) {
    made_.offset = base.offset;
  }

  Layout apply(Value index) {
    const std::vector<Value> parts =
        index.kind() == ValueKind::Tuple ? call_.children(index) : std::vector<Value>{index};
    const auto named = static_cast<size_t>(
        std::ranges::count_if(parts, [&](Value part) { return !is_ellipsis(part) && !call_.is_none(part); }));
    RuleCall::check(named <= sizes_.size());
    for (const Value part : parts) {
      if (is_ellipsis(part)) {
        for (size_t i = 0; i < sizes_.size() - named; i++) made_.strides.push_back(base_.strides[next_++]);
      } else {
        take_part(part);
      }
    }
    while (next_ < sizes_.size()) made_.strides.push_back(base_.strides[next_++]);
    return made_;
  }

 private:
  bool is_ellipsis(Value part) const {
    return part.kind() == ValueKind::Object && call_.object(part).get() == Py_Ellipsis;
  }

  void take_part(Value part) {
    shapes::ShapeEnvironment& environment = call_.environment();
    if (call_.is_none(part)) {
      const bool is_last = next_ == sizes_.size();
      made_.strides.push_back(is_last ? call_.constant(1) : environment.multiply(sizes_[next_], base_.strides[next_]));
      return;
    }
    const Expression stride = base_.strides[next_], size = sizes_[next_];
    next_++;
    if (part.kind() == ValueKind::Slice) {
      const Value start = call_.arena()[part.index], step = call_.arena()[part.index + 2];
      const Expression by = call_.is_none(step) ? call_.constant(1) : call_.number_of(step);
      if (!call_.is_none(start)) advance(call_.clamped(call_.number_of(start), size), stride);
      made_.strides.push_back(environment.multiply(stride, by));
    } else {
      // A symbol as an index is recorded as select().
      const std::optional<int64_t> index = call_.fixed_int(part);
      RuleCall::check(index.has_value());
      const Expression number = call_.constant(*index);
      advance(*index < 0 ? environment.add(number, size) : number, stride);
    }
  }

  void advance(Expression steps, Expression stride) {
    shapes::ShapeEnvironment& environment = call_.environment();
    if (made_.offset != nullptr) made_.offset = environment.add(made_.offset, environment.multiply(steps, stride));
  }

  RuleCall& call_;
  const Sizes& sizes_;
  const Layout& base_;
  Layout made_;
  size_t next_ = 0;
};

// What select() and narrow() skip.
Expression skipped(RuleCall& call, const Layout& base, const Sizes& sizes, size_t d, Value start) {
  shapes::ShapeEnvironment& environment = call.environment();
  Expression steps = call.number_of(start);
  if (call.is_negative(steps)) steps = environment.add(steps, sizes[d]);
  if (base.offset == nullptr) return nullptr;
  return environment.add(base.offset, environment.multiply(steps, base.strides[d]));
}

// expand(): dimensions of size 1 that become larger, and new ones, have the stride 0.
Layout expanded(RuleCall& call, const Sizes& sizes, const Layout& base, const Sizes& wanted) {
  Layout made{Sizes(wanted.size(), nullptr), base.offset};
  RuleCall::check(wanted.size() >= sizes.size());
  const size_t added = wanted.size() - sizes.size();
  for (size_t d = wanted.size(); d-- > 0;) {
    if (d >= added && !sizes[d - added]->is_integer(1)) {
      RuleCall::check(sizes[d - added]->hint.integer != 1);
      made.strides[d] = base.strides[d - added];
    } else if (call.holds(call.environment().equal(wanted[d], call.constant(1)))) {
      const bool is_last = d + 1 == wanted.size();
      const Expression before =
          is_last ? call.constant(1) : call.environment().multiply(wanted[d + 1], made.strides[d + 1]);
      made.strides[d] = d >= added ? base.strides[d - added] : before;
    } else {
      made.strides[d] = call.constant(0);
    }
  }
  return made;
}

}  // namespace

bool LayoutSolver::decide(Expression condition) {
  RuleCall::check(condition != nullptr && condition->has_hint);
  return sizes_.symbols().decide(condition);
}

bool LayoutSolver::is(Expression expression, int64_t value) {
  return decide(environment().equal(expression, environment().integer(value)));
}

// Strides without gaps of a tensor of these sizes. Null among them: there is no such expression.
Sizes LayoutSolver::dense_strides(const Sizes& sizes, const std::vector<size_t>& innermost_first) {
  Sizes strides(sizes.size(), nullptr);
  Expression stride = environment().integer(1);
  for (const size_t d : innermost_first) {
    strides[d] = stride;
    // A size of 0 counts as 1.
    if (stride != nullptr)
      stride = environment().multiply(stride, environment().maximum(sizes[d], environment().integer(1)));
  }
  return strides;
}

std::optional<Layout> LayoutSolver::contiguous(uint32_t tensor) {
  const Sizes sizes = sizes_.sizes_of(tensor);
  std::vector<size_t> innermost_first(sizes.size());
  std::iota(innermost_first.rbegin(), innermost_first.rend(), size_t{0});
  return Layout{dense_strides(sizes, innermost_first), environment().integer(0)};
}

// Without gaps, the dimensions in the order that they have in this call.
std::optional<Layout> LayoutSolver::in_order_of_hint(uint32_t tensor) {
  const c10::IntArrayRef hints = sizes_.program().tensors[tensor].fake.strides();
  const Sizes sizes = sizes_.sizes_of(tensor);
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return hints[a] > hints[b]; });
  std::ranges::reverse(order);
  return Layout{dense_strides(sizes, order), environment().integer(0)};
}

// A view of the first argument, with which it shares its memory for all sizes.
std::optional<Layout> LayoutSolver::solve_view(const Node& node, uint32_t tensor, uint32_t base) {
  const Rule rule = rule_of(node);
  const std::optional<Layout>& known = layout_of(base);
  if (rule == nullptr || !known) return std::nullopt;
  const Layout from = *known;
  const Sizes sizes = sizes_.sizes_of(base);
  RuleCall call(sizes_, node, tensor);
  if (is_one_of(rule, {transpose, transpose_last, reverse_dimensions, permute, movedim})) {
    call.replace_sizes(base, &from.strides);
    return Layout{rule(call), from.offset};
  }
  if (rule == select || rule == narrow) {
    const size_t d = call.dimension(1, "dim", sizes.size());
    const Value start = call.require(2, rule == select ? "index" : "start");
    const Expression offset = skipped(call, from, sizes, d, start);
    return Layout{rule == select ? without(from.strides, d) : from.strides, offset};
  }
  if (rule == getitem) return ViewIndexing(call, sizes, from).apply(call.positional_argument(1));
  if (rule == unbind) return Layout{without(from.strides, call.dimension(1, "dim", sizes.size(), 0)), nullptr};
  if (is_one_of(rule, {split, chunk, tensor_split, vsplit, hsplit, dsplit})) return Layout{from.strides, nullptr};
  if (rule == expand || rule == expand_as) return expanded(call, sizes, from, sizes_.sizes_of(tensor));
  if (rule == unsqueeze) {
    const size_t d = call.dimension(1, "dim", sizes.size() + 1);
    Layout made = from;
    const Expression stride =
        d < sizes.size() ? environment().multiply(sizes[d], from.strides[d]) : environment().integer(1);
    made.strides.insert(made.strides.begin() + static_cast<std::ptrdiff_t>(d), stride);
    return made;
  }
  if (rule == squeeze) {
    const std::optional<std::vector<size_t>> asked = call.dimensions(1, "dim", sizes.size());
    Layout made{{}, from.offset};
    for (size_t d = 0; d < sizes.size(); d++) {
      const bool is_asked = !asked || std::find(asked->begin(), asked->end(), d) != asked->end();
      if (!is_asked || !is(sizes[d], 1)) made.strides.push_back(from.strides[d]);
    }
    return made;
  }
  if (is_one_of(rule, {view, flatten, unflatten, ravel})) {
    std::optional<Sizes> strides = view_strides(base, sizes_.sizes_of(tensor));
    if (strides) return Layout{std::move(*strides), from.offset};
  }
  if (rule == aliased) return from;
  return std::nullopt;
}

std::optional<Layout> LayoutSolver::solve(uint32_t tensor) {
  Program& program = sizes_.program();
  const TensorRecord& record = program.tensors[tensor];
  const auto constants = [&] {
    Layout made;
    for (const int64_t stride : record.fake.strides()) made.strides.push_back(environment().integer(stride));
    made.offset = environment().integer(record.fake.storage_offset());
    return made;
  };
  if (record.origin == Origin::Input) {
    Layout made = constants();
    const fake::SymbolicGeometry& given = program.declared[record.index].geometry;
    if (!given.empty()) made.strides.assign(given.strides.begin(), given.strides.end());
    if (given.offset != nullptr) made.offset = given.offset;
    return made;
  }
  const uint32_t producer = program.producer(tensor);
  if (producer == kNowhere || depth_ >= kDeepest) return std::nullopt;
  const Node& node = program.nodes[producer];
  const Value first = node.positional > 0 ? program.argument(node, 0) : Value{};
  const bool has_base = first.is_tensor() && program.tensors[first.index].fake.defined();
  if (has_base && share_memory(program.tensors[first.index].fake, record.fake)) {
    depth_++;
    std::optional<Layout> made;
    try {
      made = solve_view(node, tensor, first.index);
    } catch (const NoRule&) {
    }
    depth_--;
    return made;
  }
  const Rule rule = rule_of(node);
  if (rule == attention) return in_order_of_hint(tensor);
  bool is_known = false;
  if (has_base && is_one_of(rule, {view, flatten, unflatten, ravel})) {
    is_known = is_copy(first.index, tensor);
  } else if (rule == made_contiguous) {
    // Where the argument is contiguous it is the result, with its own strides.
    is_known =
        has_base && node.argument_count() == 1 && is_contiguous(first.index, at::MemoryFormat::Contiguous) == false;
  } else {
    is_known = is_always_contiguous(sizes_, tensor);
  }
  return is_known ? contiguous(tensor) : std::nullopt;
}

// Whether a reshape copies, which is guarded. False: not known.
bool LayoutSolver::is_copy(uint32_t tensor, uint32_t reshaped) {
  try {
    return !view_strides(tensor, sizes_.sizes_of(reshaped));
  } catch (const NoRule&) {
    return false;
  }
}

// Of what a call has changed in place nothing is known: views from before have another base than those from after it.
const std::optional<Layout>& LayoutSolver::layout_of(uint32_t tensor) {
  static const std::optional<Layout> kUnknown;
  if (sizes_.is_restrided(tensor)) return kUnknown;
  const auto found = known_.find(tensor);
  if (found != known_.end()) return found->second;
  const at::Tensor& fake = sizes_.program().tensors[tensor].fake;
  std::optional<Layout> made;
  if (SizeSolver::has_plain_sizes(fake)) made = solve(tensor);
  const auto is_as = [](Expression expression, int64_t hint) {
    return expression != nullptr && expression->has_hint && expression->hint.integer == hint;
  };
  bool agrees = made && made->strides.size() == static_cast<size_t>(fake.dim());
  for (size_t d = 0; agrees && d < made->strides.size(); d++)
    agrees = is_as(made->strides[d], fake.stride(static_cast<int64_t>(d)));
  if (!agrees) made.reset();
  if (made && !is_as(made->offset, fake.storage_offset())) made->offset = nullptr;
  return known_[tensor] = std::move(made);
}

std::optional<Sizes> LayoutSolver::strides_of(uint32_t tensor) {
  const std::optional<Layout>& layout = layout_of(tensor);
  if (!layout) return std::nullopt;
  Sizes strides;
  for (const Expression stride : layout->strides) strides.push_back(environment().simplify(stride));
  return strides;
}

Expression LayoutSolver::offset_of(uint32_t tensor) {
  const std::optional<Layout>& layout = layout_of(tensor);
  return layout && layout->offset != nullptr ? environment().simplify(layout->offset) : nullptr;
}

// ---- questions

bool LayoutSolver::is_contiguous(const Sizes& sizes, const Sizes& strides, const std::vector<size_t>& innermost_first) {
  Expression expected = environment().integer(1);
  for (const size_t d : innermost_first) {
    if (is(sizes[d], 1)) continue;
    if (!decide(environment().equal(strides[d], expected))) return false;
    expected = environment().multiply(expected, sizes[d]);
    RuleCall::check(expected != nullptr);
  }
  return true;
}

std::optional<bool> LayoutSolver::is_contiguous(uint32_t tensor, at::MemoryFormat format) {
  const std::optional<Sizes> strides = strides_of(tensor);
  if (!strides) return std::nullopt;
  const Sizes sizes = sizes_.sizes_of(tensor);
  std::vector<size_t> innermost_first;
  for (size_t d = sizes.size(); d-- > 0;) innermost_first.push_back(d);
  const bool is_last = format == at::MemoryFormat::ChannelsLast || format == at::MemoryFormat::ChannelsLast3d;
  if (is_last) {
    if (sizes.size() != (format == at::MemoryFormat::ChannelsLast ? 4U : 5U)) return false;
    innermost_first.erase(std::ranges::find(innermost_first, size_t{1}));
    innermost_first.insert(innermost_first.begin(), 1);
  } else if (format != at::MemoryFormat::Contiguous) {
    return std::nullopt;
  }
  try {
    for (const Expression size : sizes)
      if (is(size, 0)) return is_last ? std::nullopt : std::optional(true);
    return is_contiguous(sizes, *strides, innermost_first);
  } catch (const NoRule&) {
    return std::nullopt;
  }
}

// As torch._prims_common.compute_elementwise_output_logical_to_physical_perm decides it.
std::optional<std::vector<int64_t>> LayoutSolver::dim_order(uint32_t tensor) {
  const std::optional<Sizes> strides = strides_of(tensor);
  if (!strides) return std::nullopt;
  const Sizes sizes = sizes_.sizes_of(tensor);
  std::vector<int64_t> order;
  for (size_t d = 0; d < sizes.size(); d++) order.push_back(static_cast<int64_t>(d));
  if (sizes.size() < 2) return order;
  const std::optional<bool> dense = is_contiguous(tensor, at::MemoryFormat::Contiguous);
  const std::optional<bool> last = is_contiguous(tensor, at::MemoryFormat::ChannelsLast);
  if (!dense || !last) return std::nullopt;
  if (*dense && !*last) return order;
  if (*last && !*dense) return std::vector<int64_t>{0, 2, 3, 1};
  const auto reaches = [&](Expression a, Expression b) {
    if (is(b, 0)) return true;
    if (is(a, 0)) return false;
    return decide(environment().greater_equal(a, b)) || is(environment().modulo(a, b), 0);
  };
  const auto compare = [&](int64_t one, int64_t other) {
    const auto i = static_cast<size_t>(one), j = static_cast<size_t>(other);
    const Expression a = (*strides)[i], b = (*strides)[j];
    if (is(a, 0) || is(b, 0)) return 0;
    if (decide(environment().equal(a, b))) return reaches(sizes[j], sizes[i]) ? 0 : 1;
    if (reaches(b, a)) return -1;
    return reaches(a, b) ? 1 : 0;
  };
  try {
    std::ranges::reverse(order);
    for (size_t i = 1; i < order.size(); i++) {
      size_t at = i;
      for (size_t before = i; before-- > 0;) {
        const int found = compare(order[before], order[at]);
        if (found < 0) break;
        if (found > 0) std::swap(order[before], order[std::exchange(at, before)]);
      }
    }
  } catch (const NoRule&) {
    return std::nullopt;
  }
  std::ranges::reverse(order);
  return order;
}

// As at::detail::computeStride() computes them.
std::optional<Sizes> LayoutSolver::view_strides(uint32_t tensor, const Sizes& wanted) {
  const std::optional<Sizes> strides = strides_of(tensor);
  RuleCall::check(strides.has_value());
  const Sizes sizes = sizes_.sizes_of(tensor);
  if (sizes.empty()) return Sizes(wanted.size(), environment().integer(1));
  for (const Expression size : sizes) RuleCall::check(size->hint.integer != 0 && !is(size, 0));
  const auto times = [&](Expression a, Expression b) {
    const Expression product = environment().multiply(a, b);
    RuleCall::check(product != nullptr);
    return product;
  };
  const Expression one = environment().integer(1);
  Sizes made(wanted.size(), nullptr);
  size_t left = wanted.size();
  Expression base = strides->back(), elements = one, viewed = one;
  for (size_t d = sizes.size(); d-- > 0;) {
    elements = times(elements, sizes[d]);
    const bool ends =
        d == 0 || (!is(sizes[d - 1], 1) && !decide(environment().equal((*strides)[d - 1], times(elements, base))));
    if (!ends) continue;
    while (left > 0 && (decide(environment().less(viewed, elements)) || is(wanted[left - 1], 1))) {
      made[left - 1] = times(viewed, base);
      viewed = times(viewed, wanted[left - 1]);
      left--;
    }
    if (!decide(environment().equal(viewed, elements))) return std::nullopt;
    if (d == 0) break;
    base = (*strides)[d - 1];
    elements = viewed = one;
  }
  return left == 0 ? std::optional(made) : std::nullopt;
}

}  // namespace alternator::graph
