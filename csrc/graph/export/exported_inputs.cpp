#include "graph/export/exported_inputs.h"

#include <algorithm>
#include <set>

namespace alternator::graph {

namespace {

using shapes::Expression;

// What a compiler takes as a symbol of its own: it has no arithmetic that rounds as Python does.
bool is_opaque(Expression expression) {
  switch (expression->kind) {
    case shapes::Kind::kSymbol:
    case shapes::Kind::kPow:
    case shapes::Kind::kGcd:
    case shapes::Kind::kTruncToInt:
    case shapes::Kind::kFloorToInt:
    case shapes::Kind::kCeilToInt:
    case shapes::Kind::kRoundToInt:
      return true;
    default:
      return false;
  }
}

// Calls visit(symbol) for the symbols of an expression, each once.
template <class Visit>
void each_symbol(Expression expression, std::set<Expression>& seen, Visit&& visit) {
  if (!seen.insert(expression).second) return;
  if (is_opaque(expression)) return visit(expression);
  for (const shapes::Term& term : expression->terms()) each_symbol(term.node, seen, visit);
}

}  // namespace

bool has_symbolic_inputs(const Program& program) {
  return std::ranges::any_of(program.inputs, [&](uint32_t declared) {
    const Input& input = program.declared[declared];
    return input.number != nullptr || !input.geometry.sizes.empty();
  });
}

std::vector<ExportedInput> exported_inputs(const Program& program) {
  std::vector<ExportedInput> symbols, rest;
  std::set<Expression> seen;
  const auto simplified = [&](Expression expression) {
    // Null: it is too large under the facts.
    Expression simple = program.backed->environment.simplify(expression);
    return simple != nullptr ? simple : expression;
  };
  const auto need = [&](Expression expression) {
    each_symbol(expression, seen,
                [&](Expression symbol) { symbols.push_back({.number = symbol, .sizes = {}, .strides = {}}); });
  };
  for (const uint32_t declared : program.inputs) {
    const Input& input = program.declared[declared];
    if (input.number != nullptr && input.number->sort() == shapes::Sort::kFloat) {
      rest.push_back({.declared = declared, .number = input.number, .sizes = {}, .strides = {}});
    } else if (input.number != nullptr) {
      need(simplified(input.number));
    } else {
      ExportedInput tensor{.declared = declared, .sizes = {}, .strides = {}};
      for (const Expression size : input.geometry.sizes) tensor.sizes.push_back(simplified(size));
      for (const Expression stride : input.geometry.strides) tensor.strides.push_back(simplified(stride));
      const auto varies = [](Expression number) { return number->kind != shapes::Kind::kInteger; };
      if (!std::ranges::any_of(tensor.sizes, varies) && !std::ranges::any_of(tensor.strides, varies)) {
        tensor.sizes.clear();
        tensor.strides.clear();
      }
      for (const Expression size : tensor.sizes) need(size);
      for (const Expression stride : tensor.strides) need(stride);
      rest.push_back(std::move(tensor));
    }
  }
  symbols.insert(symbols.end(), std::make_move_iterator(rest.begin()), std::make_move_iterator(rest.end()));
  return symbols;
}

}  // namespace alternator::graph
