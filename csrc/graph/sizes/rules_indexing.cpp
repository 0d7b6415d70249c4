// x[...], selections along a dimension, and the parts of split and chunk.
#include "graph/sizes/rule_call.h"

#include <algorithm>

namespace alternator::graph {

using shapes::Expression;

namespace {

// Walks the parts of an index over the dimensions of a tensor as torch does: first what makes a view, then tensors.
class Indexing {
 public:
  Indexing(RuleCall& call, Sizes sizes) : call_(call), sizes_(std::move(sizes)) {}

  Sizes apply(Value index) {
    const std::vector<Value> parts =
        index.kind() == ValueKind::Tuple ? call_.children(index) : std::vector<Value>{index};
    size_t named = 0;
    for (const Value part : parts) named += takes_dimension(part) ? 1 : 0;
    RuleCall::check(named <= sizes_.size());
    bool has_ellipsis = false;
    for (const Value part : parts) {
      if (is_ellipsis(part)) {
        RuleCall::check(!std::exchange(has_ellipsis, true));
        for (size_t i = 0; i < sizes_.size() - named; i++) left_.push_back(sizes_[next_++]);
      } else {
        add(part);
      }
    }
    while (next_ < sizes_.size()) left_.push_back(sizes_[next_++]);
    return with_tensors();
  }

 private:
  bool is_ellipsis(Value part) const {
    return part.kind() == ValueKind::Object && call_.object(part).get() == Py_Ellipsis;
  }
  bool takes_dimension(Value part) const { return !is_ellipsis(part) && !call_.is_none(part); }

  void add(Value part) {
    if (call_.is_none(part)) {
      left_.push_back(call_.constant(1));
    } else if (part.kind() == ValueKind::Slice) {
      add_slice(part);
    } else if (const at::Tensor* tensor = call_.tensor_of(part)) {
      add_tensor(*tensor, call_.sizes_of(part));
    } else if (part.kind() == ValueKind::List) {
      for (const Value item : call_.children(part)) RuleCall::check(call_.fixed_int(item).has_value());
      note_tensor(Sizes{call_.constant(part.count())});
    } else {
      RuleCall::check(!call_.plain_bool(part));
      (void)call_.number_of(part);
      next_++;  // one element of the dimension
    }
  }

  Expression bound(Value value) { return call_.is_none(value) ? nullptr : call_.number_of(value); }

  void add_slice(Value part) {
    const Arena& arena = call_.arena();
    const Value start = arena[part.index], stop = arena[part.index + 1], step = arena[part.index + 2];
    const std::optional<int64_t> by = call_.is_none(step) ? 1 : call_.fixed_int(step);
    RuleCall::check(by.has_value());
    left_.push_back(call_.slice_length(sizes_[next_++], bound(start), bound(stop), *by));
  }

  void add_tensor(const at::Tensor& tensor, Sizes sizes) {
    const at::ScalarType type = tensor.scalar_type();
    RuleCall::check(at::isIntegralType(type, /*includeBool=*/false) && type != at::kByte);
    if (sizes.empty()) {
      // Counts as an int, or as a tensor: the same, if it is the only one.
      has_scalar_ = true;
      next_++;
    } else {
      note_tensor(std::move(sizes));
    }
  }

  void note_tensor(Sizes sizes) {
    tensors_.push_back(std::move(sizes));
    places_.push_back(left_.size());
    left_.push_back(nullptr);
    next_++;
  }

  // In place of the dimensions that tensors index; in front if those are not adjacent.
  Sizes with_tensors() {
    if (tensors_.empty()) return left_;
    RuleCall::check(!has_scalar_);
    const Sizes together = call_.broadcast(tensors_);
    const bool is_adjacent = places_.back() - places_.front() + 1 == places_.size();
    Sizes sizes;
    if (!is_adjacent) sizes.append(together.begin(), together.end());
    for (size_t d = 0; d < left_.size(); d++) {
      if (left_[d] != nullptr) sizes.push_back(left_[d]);
      if (is_adjacent && d == places_.front()) sizes.append(together.begin(), together.end());
    }
    return sizes;
  }

  RuleCall& call_;
  Sizes sizes_;
  size_t next_ = 0;  // the dimension that the next part is about
  Sizes left_;       // the result; null: indexed by a tensor
  std::vector<Sizes> tensors_;
  std::vector<size_t> places_;
  bool has_scalar_ = false;
};

}  // namespace

Sizes getitem(RuleCall& call) {
  Indexing indexing(call, call.sizes(0, "self"));
  return indexing.apply(call.positional_argument(1));
}

// select(x, dim, index)
Sizes select(RuleCall& call) {
  const Sizes sizes = call.sizes(0, "input|self");
  call.ignore(2, "index");
  return without(sizes, call.dimension(1, "dim", sizes.size()));
}

// narrow(x, dim, start, length)
Sizes narrow(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input|self");
  const size_t d = call.dimension(1, "dim", sizes.size());
  call.ignore(2, "start");
  RuleCall::check(d < sizes.size());
  sizes[d] = call.number_of(call.require(3, "length"));
  return sizes;
}

// gather(x, dim, index), take(x, index)
Sizes same_as_index(RuleCall& call) {
  call.ignore(0, "input|self");
  const bool has_dim = !call.is_tensor_at(1, "dim|index");
  const Sizes sizes = has_dim ? call.sizes(2, "index") : call.sizes(1, "index");
  call.ignore_rest();
  return sizes;
}

// index_select(x, dim, index)
Sizes index_select(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input|self");
  const size_t d = call.dimension(1, "dim", sizes.size());
  const Sizes index = call.sizes(2, "index");
  RuleCall::check(d < sizes.size() && index.size() <= 1);
  sizes[d] = index.empty() ? call.constant(1) : index[0];
  return sizes;
}

// take_along_dim(x, indices, dim)
Sizes take_along_dim(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input|self");
  const Sizes index = call.sizes(1, "indices");
  if (!call.find(2, "dim")) return Sizes{call.product(index)};
  const size_t d = call.dimension(2, "dim", sizes.size());
  RuleCall::check(index.size() == sizes.size() && d < sizes.size());
  for (size_t i = 0; i < sizes.size(); i++) sizes[i] = i == d ? index[i] : call.broadcast(sizes[i], index[i]);
  return sizes;
}

// ---- parts

Expression part_of_equal(RuleCall& call, Expression size, Expression part, int64_t count, int64_t position) {
  shapes::ShapeEnvironment& environment = call.environment();
  const Expression before = environment.multiply(part, call.constant(count - 1));
  call.require(environment.less_equal(call.constant(1), part));
  if (count > 1) call.require(environment.less(before, size));
  call.require(environment.less_equal(size, environment.multiply(part, call.constant(count))));
  if (position == RuleCall::kWholeResult) return size;
  return position + 1 < count ? part : environment.subtract(size, before);
}

// split(x, size, dim), split(x, sizes, dim)
static Expression part_of_split(RuleCall& call, Expression size, int64_t count, int64_t position) {
  constexpr auto kNames = "split_size_or_sections|split_size|split_sizes";
  if (!call.is_sequence_at(1, kNames)) {
    return part_of_equal(call, size, call.number_of(call.require(1, kNames)), count, position);
  }
  const std::vector<Value> parts = call.items(1, kNames);
  RuleCall::check(static_cast<int64_t>(parts.size()) == count);
  // Whatever part is asked for: the call fails unless they make up the whole.
  std::vector<Expression> numbers;
  Expression sum = call.constant(0);
  for (const Value part : parts) {
    numbers.push_back(call.number_of(part));
    RuleCall::check(!call.is_negative(numbers.back()));
    sum = call.environment().add(sum, numbers.back());
  }
  call.same(sum, size);
  return position == RuleCall::kWholeResult ? size : numbers[static_cast<size_t>(position)];
}

static Expression part_of_chunk(RuleCall& call, Expression size, int64_t count, int64_t position) {
  const int64_t wanted = call.integer(1, "chunks");
  RuleCall::check(wanted > 0);
  return part_of_equal(call, size, call.ceil_divide(size, call.constant(wanted)), count, position);
}

// tensor_split(x, n, dim), tensor_split(x, indices, dim): as many as the argument says.
static Expression part_of_tensor_split(RuleCall& call, Expression size, int64_t count, int64_t position) {
  constexpr auto kNames = "indices_or_sections|sections|indices";
  if (!call.is_sequence_at(1, kNames)) {
    RuleCall::check(call.integer(1, kNames) == count);
    // The first ones get what is left over.
    const Expression rounded = call.environment().add(size, call.constant(count - 1 - std::max<int64_t>(position, 0)));
    return call.environment().floor_divide(rounded, call.constant(count));
  }
  const std::vector<Value> bounds = call.items(1, kNames);
  RuleCall::check(static_cast<int64_t>(bounds.size()) + 1 == count);
  if (position == RuleCall::kWholeResult) return size;
  const auto at = static_cast<size_t>(position);
  return call.slice_length(size, at > 0 ? call.number_of(bounds[at - 1]) : nullptr,
                           at < bounds.size() ? call.number_of(bounds[at]) : nullptr, 1);
}

using Part = Expression (*)(RuleCall&, Expression, int64_t, int64_t);

static Sizes part_along(RuleCall& call, Part part, uint32_t at, std::optional<size_t> dimension) {
  Sizes sizes = call.sizes(0, "input|self|tensor");
  const size_t d = dimension ? *dimension : call.dimension(at, "dim", sizes.size(), 0);
  RuleCall::check(d < sizes.size());
  RuleCall::check(call.count() > 0 && call.position() < call.count());
  sizes[d] = part(call, sizes[d], call.count(), call.position());
  return sizes;
}

Sizes split(RuleCall& call) { return part_along(call, part_of_split, 2, {}); }
Sizes chunk(RuleCall& call) { return part_along(call, part_of_chunk, 2, {}); }
Sizes tensor_split(RuleCall& call) { return part_along(call, part_of_tensor_split, 2, {}); }
Sizes vsplit(RuleCall& call) { return part_along(call, part_of_tensor_split, 2, 0); }
Sizes dsplit(RuleCall& call) { return part_along(call, part_of_tensor_split, 2, 2); }
Sizes hsplit(RuleCall& call) {
  return part_along(call, part_of_tensor_split, 2, call.sizes(0, "input|self").size() > 1 ? 1 : 0);
}

// unbind(x, dim): as many as the size.
Sizes unbind(RuleCall& call) {
  const Sizes sizes = call.sizes(0, "input|self");
  const size_t d = call.dimension(1, "dim", sizes.size(), 0);
  RuleCall::check(d < sizes.size());
  call.require(call.environment().equal(sizes[d], call.constant(call.count())));
  return without(sizes, d);
}

}  // namespace alternator::graph
