// Products of matrices, attention.
#include "graph/sizes/rule_call.h"

#include <algorithm>
#include <array>

namespace alternator::graph {

using shapes::Expression;

static Sizes matrix_product(RuleCall& call, const Sizes& a, const Sizes& b) {
  RuleCall::check(!a.empty() && !b.empty());
  const size_t rows = b.size() == 1 ? 0 : b.size() - 2;
  Sizes batch_a = a, batch_b = b;
  batch_a.resize(a.size() - std::min<size_t>(a.size(), 2));
  batch_b.resize(rows);
  Sizes sizes = call.broadcast(batch_a, batch_b);
  if (a.size() > 1) sizes.push_back(a[a.size() - 2]);
  if (b.size() > 1) sizes.push_back(b.back());
  return sizes;
}

Sizes matmul(RuleCall& call) {
  return matrix_product(call, call.sizes(0, "input|self"), call.sizes(1, "other|mat2|vec|tensor"));
}

// The reflected operator: y.__rmatmul__(x) is x @ y.
Sizes reflected_matmul(RuleCall& call) { return matrix_product(call, call.sizes(1, "other"), call.sizes(0, "self")); }

// addmm(x, a, b) and the like, which broadcast x to the product.
Sizes addmm(RuleCall& call) {
  call.ignore(0, "input|self");
  return matrix_product(call, call.sizes(1, "mat1|mat|batch1"), call.sizes(2, "mat2|vec|batch2"));
}

// Of no rows, torch returns x as it is.
Sizes addmv(RuleCall& call) {
  const Sizes matrix = call.sizes(1, "mat");
  RuleCall::check(!matrix.empty());
  call.require(call.environment().less_equal(call.constant(1), matrix[0]));
  return addmm(call);
}

Sizes addbmm(RuleCall& call) {
  call.ignore(0, "input|self");
  const Sizes a = call.sizes(1, "batch1"), b = call.sizes(2, "batch2");
  RuleCall::check(a.size() == 3 && b.size() == 3);
  return Sizes{a[1], b[2]};
}

Sizes addr(RuleCall& call) {
  call.ignore(0, "input|self");
  const Sizes a = call.sizes(1, "vec1"), b = call.sizes(2, "vec2");
  RuleCall::check(a.size() == 1 && b.size() == 1);
  return Sizes{a[0], b[0]};
}

// linear(x, weight): of `out` rows, or one vector
Sizes linear(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input");
  const Sizes weight = call.sizes(1, "weight");
  call.ignore(2, "bias");
  RuleCall::check(!sizes.empty() && (weight.size() == 1 || weight.size() == 2));
  sizes.pop_back();
  if (weight.size() == 2) sizes.push_back(weight[0]);
  return sizes;
}

Sizes bilinear(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input1");
  call.ignore(1, "input2");
  const Sizes weight = call.sizes(2, "weight");
  call.ignore(3, "bias");
  RuleCall::check(!sizes.empty() && weight.size() == 3);
  sizes.back() = weight[0];
  return sizes;
}

Sizes outer(RuleCall& call) {
  const Sizes a = call.sizes(0, "input|self"), b = call.sizes(1, "vec2");
  RuleCall::check(a.size() == 1 && b.size() == 1);
  return Sizes{a[0], b[0]};
}

Sizes inner(RuleCall& call) {
  const Sizes a = call.sizes(0, "input|self"), b = call.sizes(1, "other");
  if (a.empty() || b.empty()) return a.empty() ? b : a;
  Sizes sizes(a.begin(), a.end() - 1);
  sizes.append(b.begin(), b.end() - 1);
  return sizes;
}

// cdist(x, y)
Sizes cdist(RuleCall& call) {
  const Sizes a = call.sizes(0, "x1"), b = call.sizes(1, "x2");
  call.ignore(2, "p");
  call.ignore(3, "compute_mode");
  RuleCall::check(a.size() >= 2 && b.size() >= 2);
  Sizes sizes = call.broadcast(Sizes(a.begin(), a.end() - 2), Sizes(b.begin(), b.end() - 2));
  sizes.push_back(a[a.size() - 2]);
  sizes.push_back(b[b.size() - 2]);
  return sizes;
}

// scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
Sizes attention(RuleCall& call) {
  const Sizes query = call.sizes(0, "query"), key = call.sizes(1, "key"), value = call.sizes(2, "value");
  call.ignore(3, "attn_mask");
  call.ignore(4, "dropout_p");
  call.ignore(5, "is_causal");
  const bool is_grouped = call.flag(RuleCall::kKeywordOnly, "enable_gqa", false);
  // Grouped heads, in the dimension before those of a matrix, are the query's.
  const std::ptrdiff_t own = is_grouped ? 3 : 2;
  RuleCall::check(std::ranges::all_of(std::array{query.size(), key.size(), value.size()},
                                      [&](size_t rank) { return rank >= static_cast<size_t>(own); }));
  const auto batch = [&](const Sizes& sizes) { return Sizes(sizes.begin(), sizes.end() - own); };
  Sizes sizes = call.broadcast(batch(query), call.broadcast(batch(key), batch(value)));
  if (is_grouped) sizes.push_back(query[query.size() - 3]);
  sizes.push_back(query[query.size() - 2]);
  sizes.push_back(value.back());
  return sizes;
}

// multi_head_attention_forward(query, ...): the first of its results.
Sizes multi_head_attention(RuleCall& call) {
  constexpr uint32_t kHeads = 4, kKeyBias = 7, kZeros = 9, kOutput = 11, kStaticKey = 21, kAverages = 23;
  const Sizes query = call.sizes(0, "query"), key = call.sizes(1, "key");
  const Sizes output = call.sizes(kOutput, "out_proj_weight");
  const bool has_more_keys =
      call.find(kKeyBias, "bias_k") || call.flag(kZeros, "add_zero_attn", false) || call.find(kStaticKey, "static_k");
  const bool averages = call.flag(kAverages, "average_attn_weights", true);
  const int64_t heads = call.integer(kHeads, "num_heads");
  call.ignore_rest();
  const size_t rank = query.size();
  RuleCall::check((rank == 2 || rank == 3) && key.size() == rank && output.size() == 2 && call.position() >= 0);
  if (call.position() == 0) {
    Sizes sizes = query;
    sizes.back() = output[0];
    return sizes;
  }
  // The weights: of [length, batch, ...] and [length, ...].
  RuleCall::check(call.position() == 1 && !has_more_keys);
  Sizes weights;
  if (rank == 3) weights.push_back(query[1]);
  if (!averages) weights.push_back(call.constant(heads));
  weights.push_back(query[0]);
  weights.push_back(key[0]);
  return weights;
}

namespace {

// einsum("...ij,jk->...ik", x, y): letters and the dimensions that "..." stands for, with the output written.
class Einsum {
 public:
  explicit Einsum(RuleCall& call) : call_(call) {}

  Sizes apply(std::string_view text, const std::vector<Sizes>& operands) {
    const size_t arrow = text.find("->");
    RuleCall::check(arrow != std::string_view::npos);
    std::string_view inputs = text.substr(0, arrow);
    for (size_t i = 0; i < operands.size(); i++) {
      const size_t end = std::min(inputs.find(','), inputs.size());
      RuleCall::check((end < inputs.size()) == (i + 1 < operands.size()));
      add(inputs.substr(0, end), operands[i]);
      inputs.remove_prefix(std::min(end + 1, inputs.size()));
    }
    return output(text.substr(arrow + 2));
  }

 private:
  static bool is_ellipsis(std::string_view text, size_t at) { return text.substr(at, 3) == "..."; }
  Expression& letter(char c) {
    RuleCall::check((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'));
    return letters_[static_cast<size_t>(c)];
  }

  void add(std::string_view labels, const Sizes& sizes) {
    const auto named =
        static_cast<size_t>(std::count_if(labels.begin(), labels.end(), [](char c) { return c != ' ' && c != '.'; }));
    RuleCall::check(named <= sizes.size());
    size_t d = 0;
    for (size_t i = 0; i < labels.size(); i++) {
      if (labels[i] == ' ') continue;
      if (is_ellipsis(labels, i)) {
        const size_t count = sizes.size() - named;
        rest_ = call_.broadcast(rest_, Sizes(sizes.begin() + static_cast<std::ptrdiff_t>(d),
                                             sizes.begin() + static_cast<std::ptrdiff_t>(d + count)));
        d += count;
        i += 2;
        continue;
      }
      RuleCall::check(d < sizes.size());
      Expression& size = letter(labels[i]);
      size = size == nullptr ? sizes[d] : call_.broadcast(size, sizes[d]);
      d++;
    }
    RuleCall::check(d == sizes.size());
  }

  Sizes output(std::string_view labels) {
    Sizes sizes;
    for (size_t i = 0; i < labels.size(); i++) {
      if (labels[i] == ' ') continue;
      if (is_ellipsis(labels, i)) {
        sizes.append(rest_.begin(), rest_.end());
        i += 2;
        continue;
      }
      RuleCall::check(letter(labels[i]) != nullptr);
      sizes.push_back(letter(labels[i]));
    }
    return sizes;
  }

  RuleCall& call_;
  std::array<Expression, 128> letters_{};
  Sizes rest_;
};

}  // namespace

Sizes einsum(RuleCall& call) {
  const Value equation = call.require(0, "equation");
  RuleCall::check(equation.kind() == ValueKind::Object && PyUnicode_Check(call.object(equation).get()));
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(call.object(equation).get(), &length);
  if (text == nullptr) throw PyError();
  std::vector<Sizes> operands;
  if (call.is_sequence_at(1, {})) {
    operands = call.tensors(1, {});
  } else {
    for (uint32_t i = 1; i < call.positional(); i++) operands.push_back(call.sizes(i, {}));
  }
  return Einsum(call).apply({text, static_cast<size_t>(length)}, operands);
}

// tensordot(a, b, dims): a number of dimensions, or a list of them for each
Sizes tensordot(RuleCall& call) {
  const Sizes a = call.sizes(0, "a"), b = call.sizes(1, "b");
  std::vector<size_t> of_a, of_b;
  if (call.is_sequence_at(2, "dims")) {
    const std::vector<Value> dims = call.items(2, "dims");
    RuleCall::check(dims.size() == 2);
    const auto named = [&](Value list, size_t rank) {
      std::vector<size_t> found;
      for (const Value d : call.children(list)) found.push_back(RuleCall::wrap(call.fixed(call.number_of(d)), rank));
      return found;
    };
    of_a = named(dims[0], a.size());
    of_b = named(dims[1], b.size());
  } else {
    const int64_t count = call.integer(2, "dims", 2);
    RuleCall::check(count >= 0 && static_cast<size_t>(count) <= std::min(a.size(), b.size()));
    for (size_t i = 0; i < static_cast<size_t>(count); i++) {
      of_a.push_back(a.size() - static_cast<size_t>(count) + i);
      of_b.push_back(i);
    }
  }
  Sizes sizes;
  const auto add_others = [&](const Sizes& from, const std::vector<size_t>& gone) {
    for (size_t d = 0; d < from.size(); d++) {
      if (std::find(gone.begin(), gone.end(), d) == gone.end()) sizes.push_back(from[d]);
    }
  };
  add_others(a, of_a);
  add_others(b, of_b);
  return sizes;
}

// _native_multi_head_attention(query, key, value, embed_dim, num_head, ..., need_weights, average_attn_weights, ...)
Sizes native_multi_head_attention(RuleCall& call) {
  constexpr uint32_t kHeads = 4, kAverages = 11;
  const Sizes query = call.sizes(0, "query"), key = call.sizes(1, "key");
  call.ignore_rest();
  RuleCall::check(query.size() == 3 && key.size() == 3 && call.position() >= 0 && call.position() <= 1);
  if (call.position() == 0) return query;
  Sizes weights{query[0]};
  if (!call.flag(kAverages, "average_attn_weights", true))
    weights.push_back(call.constant(call.integer(kHeads, "num_head")));
  weights.push_back(query[1]);
  weights.push_back(key[1]);
  return weights;
}

// lstm(input, (h, c), weights, has_biases, num_layers, dropout, train, bidirectional, batch_first), gru(input, h, ...)
Sizes recurrent(RuleCall& call) {
  constexpr uint32_t kBidirectional = 7;
  Sizes input = call.sizes(0, "input");
  RuleCall::check(call.is_sequence_at(2, "params"));
  std::vector<Sizes> states;
  if (call.is_sequence_at(1, "hx")) {
    states = call.tensors(1, "hx");
  } else {
    states.push_back(call.sizes(1, "hx"));
  }
  const bool is_bidirectional = call.flag(kBidirectional, "bidirectional", false);
  call.ignore_rest();
  const int64_t position = call.position();
  RuleCall::check(position >= 0 && position <= static_cast<int64_t>(states.size()));
  if (position > 0) return states[static_cast<size_t>(position) - 1];
  RuleCall::check(!input.empty() && !states[0].empty());
  input.back() = call.environment().scale(states[0].back(), is_bidirectional ? 2 : 1);
  return input;
}

}  // namespace alternator::graph
