// Views, and copies that only arrange elements anew.
#include "graph/sizes/rule_call.h"

#include <torch/csrc/Dtype.h>

#include <algorithm>

namespace alternator::graph {

using shapes::Expression;

Sizes aliased(RuleCall& call) { return same_as_first(call); }
Sizes made_contiguous(RuleCall& call) { return same_as_first(call); }

// view(x, dtype): the last size changes with the size of an element.
static Sizes of_other_type(RuleCall& call, Sizes sizes, Value dtype) {
  const at::Tensor* tensor = call.tensor_of(call.require(0, "input|self"));
  const auto other = reinterpret_cast<THPDtype*>(call.object(dtype).get())->scalar_type;
  const auto from = static_cast<int64_t>(tensor->element_size()), to = static_cast<int64_t>(c10::elementSize(other));
  if (from == to) return sizes;
  RuleCall::check(!sizes.empty());
  const Expression bytes = call.environment().multiply(sizes.back(), call.constant(from));
  sizes.back() = call.environment().floor_divide(bytes, call.constant(to));
  return sizes;
}

// view(x, *sizes), reshape: one may be -1.
Sizes view(RuleCall& call) {
  const Sizes sizes = call.sizes(0, "input|self");
  const Value first = call.require(1, "shape|size|dtype");
  if (first.kind() == ValueKind::Object && THPDtype_Check(call.object(first).get()))
    return of_other_type(call, sizes, first);
  return call.inferred(call.numbers(1, "shape|size"), call.product(sizes));
}

Sizes flatten(RuleCall& call) {
  const Sizes sizes = call.sizes(0, "input|self");
  if (sizes.empty()) return Sizes{call.constant(1)};
  const size_t first = call.dimension(1, "start_dim", sizes.size(), 0);
  const size_t last = call.dimension(2, "end_dim", sizes.size(), -1);
  RuleCall::check(first <= last);
  Sizes flat(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(first));
  flat.push_back(call.product(Sizes(sizes.begin() + static_cast<std::ptrdiff_t>(first),
                                    sizes.begin() + static_cast<std::ptrdiff_t>(last) + 1)));
  flat.append(sizes.begin() + static_cast<std::ptrdiff_t>(last) + 1, sizes.end());
  return flat;
}

Sizes ravel(RuleCall& call) { return Sizes{call.product(call.sizes(0, "input|self"))}; }

// unflatten(x, dim, sizes)
Sizes unflatten(RuleCall& call) {
  const Sizes sizes = call.sizes(0, "input|self");
  const size_t d = call.dimension(1, "dim", sizes.size());
  RuleCall::check(d < sizes.size());
  const Sizes parts = call.inferred(call.numbers(2, "sizes"), sizes[d]);
  Sizes all(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(d));
  all.append(parts.begin(), parts.end());
  all.append(sizes.begin() + static_cast<std::ptrdiff_t>(d) + 1, sizes.end());
  return all;
}

Sizes transpose(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input|self");
  const size_t a = call.dimension(1, "dim0|axis0", sizes.size()), b = call.dimension(2, "dim1|axis1", sizes.size());
  if (!sizes.empty()) std::swap(sizes[a], sizes[b]);
  return sizes;
}

// t(), .mT, adjoint(): the last two; of a vector, itself.
Sizes transpose_last(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input|self");
  if (sizes.size() >= 2) std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  call.ignore_rest();
  return sizes;
}

Sizes reverse_dimensions(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input|self");
  std::reverse(sizes.begin(), sizes.end());
  call.ignore_rest();
  return sizes;
}

Sizes permute(RuleCall& call) {
  const Sizes sizes = call.sizes(0, "input|self"), order = call.numbers(1, "dims");
  Sizes permuted;
  RuleCall::check(order.size() == sizes.size());
  for (const Expression d : order) {
    permuted.push_back(sizes[RuleCall::wrap(call.fixed(d), sizes.size())]);
  }
  return permuted;
}

// movedim(x, source, destination)
Sizes movedim(RuleCall& call) {
  const Sizes sizes = call.sizes(0, "input|self");
  const auto from = call.dimensions(1, "source", sizes.size()), to = call.dimensions(2, "destination", sizes.size());
  RuleCall::check(from && to && from->size() == to->size());
  Sizes moved(sizes.size(), nullptr);
  std::vector<bool> is_taken(sizes.size());
  for (size_t i = 0; i < from->size(); i++) {
    moved[(*to)[i]] = sizes[(*from)[i]];
    is_taken[(*from)[i]] = true;
  }
  size_t next = 0;
  for (Expression& size : moved) {
    if (size != nullptr) continue;
    while (next < sizes.size() && is_taken[next]) next++;
    RuleCall::check(next < sizes.size());
    size = sizes[next++];
  }
  return moved;
}

Sizes unsqueeze(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input|self");
  const size_t d = call.dimension(1, "dim", sizes.size() + 1);
  sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(d), call.constant(1));
  return sizes;
}

// squeeze(x, dims): which of them are 1 was guarded at the call.
Sizes squeeze(RuleCall& call) {
  const Sizes sizes = call.sizes(0, "input|self");
  const std::optional<std::vector<size_t>> dimensions = call.dimensions(1, "dim", sizes.size());
  Sizes left;
  for (size_t d = 0; d < sizes.size(); d++) {
    const bool is_asked = !dimensions || std::find(dimensions->begin(), dimensions->end(), d) != dimensions->end();
    const bool goes = is_asked && call.holds(call.environment().equal(sizes[d], call.constant(1)));
    if (!goes) left.push_back(sizes[d]);
  }
  return left;
}

static Sizes expanded(RuleCall& call, const Sizes& sizes, Sizes wanted) {
  RuleCall::check(wanted.size() >= sizes.size());
  const size_t offset = wanted.size() - sizes.size();
  for (size_t d = 0; d < wanted.size(); d++) {
    if (wanted[d]->is_integer(-1)) {
      RuleCall::check(d >= offset);
      wanted[d] = sizes[d - offset];
      continue;
    }
    RuleCall::check(!call.is_negative(wanted[d]));
    if (d < offset || sizes[d - offset]->is_integer(1)) continue;
    const Expression size = sizes[d - offset];
    // A size of 1 becomes any.
    if (size->hint.integer == 1 && wanted[d]->hint.integer != 1) {
      call.require(call.environment().equal(size, call.constant(1)));
    } else {
      wanted[d] = call.same(size, wanted[d]);
    }
  }
  return wanted;
}

Sizes expand(RuleCall& call) {
  const Sizes sizes = call.sizes(0, "input|self");
  Sizes wanted = call.numbers(1, "size|shape");
  call.ignore(RuleCall::kKeywordOnly, "implicit");
  return expanded(call, sizes, std::move(wanted));
}

Sizes expand_as(RuleCall& call) { return expanded(call, call.sizes(0, "self"), call.sizes(1, "other")); }

Sizes diagonal(RuleCall& call) {
  const Sizes sizes = call.sizes(0, "input|self|A");
  const int64_t offset = call.integer(1, "offset", 0);
  const size_t a = call.dimension(2, "dim1", sizes.size(), 0), b = call.dimension(3, "dim2", sizes.size(), 1);
  RuleCall::check(sizes.size() >= 2 && a != b && offset > -INT32_MAX && offset < INT32_MAX);
  Sizes left;
  for (size_t d = 0; d < sizes.size(); d++) {
    if (d != a && d != b) left.push_back(sizes[d]);
  }
  const Expression rows = call.environment().subtract(sizes[a], call.constant(std::max<int64_t>(-offset, 0)));
  const Expression columns = call.environment().subtract(sizes[b], call.constant(std::max<int64_t>(offset, 0)));
  left.push_back(call.environment().maximum(call.environment().minimum(rows, columns), call.constant(0)));
  return left;
}

// diag_embed(x, offset, dim1, dim2): the last dimension becomes two.
Sizes diag_embed(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input|self");
  const int64_t offset = call.integer(1, "offset", 0);
  const size_t rank = sizes.size() + 1;
  const size_t a = call.dimension(2, "dim1", rank, -2), b = call.dimension(3, "dim2", rank, -1);
  RuleCall::check(!sizes.empty() && a != b && offset > -INT32_MAX && offset < INT32_MAX);
  const Expression length = call.environment().add(sizes.back(), call.constant(offset < 0 ? -offset : offset));
  sizes.pop_back();
  for (const size_t d : {std::min(a, b), std::max(a, b)}) {
    sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(d), length);
  }
  return sizes;
}

// as_strided(x, size, stride, offset)
Sizes as_strided(RuleCall& call) {
  call.ignore(0, "input|self");
  RuleCall::check(call.is_sequence_at(1, "size"));
  Sizes sizes;
  for (const Value item : call.items(1, "size")) sizes.push_back(call.number_of(item));
  call.ignore(2, "stride");
  call.ignore(3, "storage_offset");
  return sizes;
}

static Sizes at_least(RuleCall& call, size_t rank) {
  Sizes sizes = call.sizes(0, {});
  RuleCall::check(call.positional() == 1);
  if (rank == 3 && sizes.size() == 2) sizes.push_back(call.constant(1));
  if (rank == 3 && sizes.size() == 1) sizes = Sizes{call.constant(1), sizes[0], call.constant(1)};
  while (sizes.size() < rank) sizes.insert(sizes.begin(), call.constant(1));
  return sizes;
}

Sizes at_least_1d(RuleCall& call) { return at_least(call, 1); }
Sizes at_least_2d(RuleCall& call) { return at_least(call, 2); }
Sizes at_least_3d(RuleCall& call) { return at_least(call, 3); }

Sizes view_as_real(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input|self");
  sizes.push_back(call.constant(2));
  return sizes;
}

Sizes view_as_complex(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input|self");
  RuleCall::check(!sizes.empty());
  sizes.pop_back();
  return sizes;
}

// x.unfold(dim, size, step)
Sizes unfold_dimension(RuleCall& call) {
  Sizes sizes = call.sizes(0, "self");
  const size_t d = call.dimension(1, "dimension", sizes.size());
  const Expression size = call.number_of(call.require(2, "size"));
  const int64_t step = call.integer(3, "step");
  RuleCall::check(d < sizes.size() && step > 0);
  const Expression rest = call.environment().subtract(sizes[d], size);
  sizes[d] = call.environment().add(call.environment().floor_divide(rest, call.constant(step)), call.constant(1));
  sizes.push_back(size);
  return sizes;
}

// repeat(x, *counts)
Sizes repeat(RuleCall& call) {
  const Sizes sizes = call.sizes(0, "input|self");
  Sizes counts = call.numbers(1, "repeats");
  RuleCall::check(counts.size() >= sizes.size());
  const size_t offset = counts.size() - sizes.size();
  for (size_t d = 0; d < sizes.size(); d++) {
    counts[offset + d] = call.environment().multiply(counts[offset + d], sizes[d]);
  }
  return counts;
}

// tile(x, *counts): with as many ones before the shorter as are missing.
Sizes tile(RuleCall& call) {
  const Sizes sizes = call.sizes(0, "input|self"), counts = call.numbers(1, "dims");
  Sizes tiled = sizes.size() >= counts.size() ? sizes : counts;
  const Sizes& shorter = sizes.size() >= counts.size() ? counts : sizes;
  const size_t offset = tiled.size() - shorter.size();
  for (size_t d = 0; d < shorter.size(); d++) {
    tiled[offset + d] = call.environment().multiply(tiled[offset + d], shorter[d]);
  }
  return tiled;
}

// repeat_interleave(x, count, dim)
Sizes repeat_interleave(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input|self");
  const Expression count = call.number_of(call.require(1, "repeats"));
  if (!call.find(2, "dim")) return Sizes{call.environment().multiply(call.product(sizes), count)};
  const size_t d = call.dimension(2, "dim", sizes.size());
  RuleCall::check(d < sizes.size());
  sizes[d] = call.environment().multiply(sizes[d], count);
  return sizes;
}

// rot90(x, k, dims)
Sizes rot90(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input|self");
  const int64_t k = call.integer(1, "k", 1);
  const auto plane = call.dimensions(2, "dims", sizes.size());
  RuleCall::check(sizes.size() >= 2 && (!plane || plane->size() == 2));
  if (k % 2 != 0) std::swap(sizes[plane ? (*plane)[0] : 0], sizes[plane ? (*plane)[1] : 1]);
  return sizes;
}

// _add_batch_dim(x, dim, level)
Sizes add_batch_dim(RuleCall& call) {
  const Sizes sizes = call.sizes(0, "self");
  call.ignore(2, "level");
  return without(sizes, call.dimension(1, "batch_dim", sizes.size()));
}

// _remove_batch_dim(x, level, batch_size, out_dim)
Sizes remove_batch_dim(RuleCall& call) {
  Sizes sizes = call.sizes(0, "self");
  call.ignore(1, "level");
  const Expression batch = call.number_of(call.require(2, "batch_size"));
  const size_t at = call.dimension(3, "out_dim", sizes.size() + 1);
  sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(at), batch);
  return sizes;
}

}  // namespace alternator::graph
