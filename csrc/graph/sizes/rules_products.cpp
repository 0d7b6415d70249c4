// Products of matrices, attention.
#include "graph/sizes/rule_call.h"

#include <array>

namespace alternator::graph {

using shapes::Expression;

static Sizes matrix_product(RuleCall& call, const Sizes& a, const Sizes& b) {
  RuleCall::check(!a.empty() && !b.empty());
  const size_t rows = b.size() == 1 ? 0 : b.size() - 2;
  (void)call.same(a.back(), b[rows]);
  const Sizes batch_a(a.begin(), a.end() - static_cast<std::ptrdiff_t>(std::min<size_t>(a.size(), 2)));
  const Sizes batch_b(b.begin(), b.begin() + static_cast<std::ptrdiff_t>(rows));
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

// linear(x, weight): of `out` rows, or one vector
Sizes linear(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input");
  const Sizes weight = call.sizes(1, "weight");
  call.ignore(2, "bias");
  RuleCall::check(!sizes.empty() && (weight.size() == 1 || weight.size() == 2));
  (void)call.same(sizes.back(), weight.back());
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
  (void)call.same(a.back(), b.back());
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
  RuleCall::check(query.size() >= 2 && key.size() >= 2 && value.size() >= 2);
  const auto batch = [](const Sizes& sizes) { return Sizes(sizes.begin(), sizes.end() - 2); };
  Sizes sizes = batch(query);
  if (!is_grouped) sizes = call.broadcast(sizes, call.broadcast(batch(key), batch(value)));
  sizes.push_back(query[query.size() - 2]);
  sizes.push_back(value.back());
  return sizes;
}

// multi_head_attention_forward(query, ...): the first of its results.
Sizes multi_head_attention(RuleCall& call) {
  RuleCall::check(call.position() == 0);
  constexpr uint32_t kOutput = 11;  // out_proj_weight
  Sizes sizes = call.sizes(0, "query");
  const Sizes output = call.sizes(kOutput, "out_proj_weight");
  call.ignore_rest();
  RuleCall::check(sizes.size() >= 2 && output.size() == 2);
  sizes.back() = output[0];
  return sizes;
}

// einsum("ij,jk->ik", x, y) with all letters written, and one output.
Sizes einsum(RuleCall& call) {
  const Value equation = call.require(0, "equation");
  RuleCall::check(equation.kind() == ValueKind::Object && PyUnicode_Check(call.object(equation).get()));
  const char* text = PyUnicode_AsUTF8(call.object(equation).get());
  if (text == nullptr) throw PyError();
  std::array<Expression, 128> letters{};
  std::vector<Sizes> operands;
  if (call.is_sequence_at(1, {})) {
    operands = call.tensors(1, {});
  } else {
    for (uint32_t i = 1; i < call.positional(); i++) operands.push_back(call.sizes(i, {}));
  }
  const char* at = text;
  size_t operand = 0, d = 0;
  for (; *at != '\0' && *at != '-'; at++) {
    if (*at == ' ') continue;
    RuleCall::check(operand < operands.size());
    if (*at == ',') {
      RuleCall::check(d == operands[operand].size());
      operand++;
      d = 0;
      continue;
    }
    RuleCall::check(((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z')) && d < operands[operand].size());
    Expression& letter = letters[static_cast<size_t>(*at)];
    letter = letter == nullptr ? operands[operand][d] : call.broadcast(letter, operands[operand][d]);
    d++;
  }
  RuleCall::check(operand + 1 == operands.size() && d == operands[operand].size() && at[0] == '-' && at[1] == '>');
  Sizes sizes;
  for (at += 2; *at != '\0'; at++) {
    if (*at == ' ') continue;
    const auto letter = static_cast<unsigned char>(*at);
    RuleCall::check(letter < letters.size() && letters[letter] != nullptr);
    sizes.push_back(letters[letter]);
  }
  return sizes;
}

}  // namespace alternator::graph
