#include "lift/lifting/symbol_fates.h"

#include <algorithm>

namespace alternator::lift {

using fake::BackedSymbols;
using shapes::Expression;

std::string SymbolFate::text() const {
  switch (reads) {
    case BackedSymbols::Reads::kSize:
      return source + ".size(" + std::to_string(dimension) + ")";
    case BackedSymbols::Reads::kStride:
      return source + ".stride(" + std::to_string(dimension) + ")";
    case BackedSymbols::Reads::kOffset:
      return source + ".storage_offset()";
    default:
      return source;
  }
}

static bool mentions(Expression expression, Expression symbol) {
  std::vector<Expression> open{expression};
  std::unordered_set<Expression> seen;
  while (!open.empty()) {
    const Expression node = open.back();
    open.pop_back();
    if (node == symbol) return true;
    // Operands come before what is made of them.
    if (node->id < symbol->id || !seen.insert(node).second) continue;
    for (const shapes::Term& term : node->terms()) open.push_back(term.node);
  }
  return false;
}

// The instructions whose guards led to the value: of those that mention the symbol, in order.
static std::vector<Site> sites_of(const SourceTree& tree, const BackedSymbols& symbols, Expression symbol) {
  std::vector<Site> sites;
  for (const shapes::Guard& guard : symbols.environment.guards()) {
    if (!mentions(guard.condition, symbol)) continue;
    const Site& site = tree.site(guard.tag);
    const auto is_same = [&](const Site& other) {
      return other.code.get() == site.code.get() && other.index == site.index;
    };
    if (site.code && std::ranges::none_of(sites, is_same)) sites.push_back({Ref(site.code), site.index});
  }
  return sites;
}

static void restore(Source& source, const SymbolFate& fate) {
  for (Guard& guard : source.guards) {
    if (guard.kind != GuardKind::kTensor) continue;
    auto spec = std::make_shared<TensorSpec>(*guard.tensor);
    StrideRules& rules = spec->stride_rules;
    if (fate.reads == BackedSymbols::Reads::kSize) spec->free_sizes &= ~(uint64_t{1} << fate.dimension);
    if (fate.reads == BackedSymbols::Reads::kStride && fate.dimension < rules.size())
      rules[fate.dimension] = kFixedStride;
    if (fate.reads == BackedSymbols::Reads::kOffset) spec->offset = fate.hint;
    // Strides that follow from sizes that are fixed are.
    if (spec->free_sizes == 0 && std::ranges::find(rules, kAnyStride) == rules.end()) rules.clear();
    guard.tensor = std::move(spec);
  }
}

static void restore_number(Source& source, int64_t value) {
  for (Guard& guard : source.guards) {
    if (guard.kind != GuardKind::kType || Borrowed(guard.object) != reinterpret_cast<PyObject*>(&PyLong_Type)) continue;
    guard.kind = GuardKind::kEquals;
    guard.object = checked(PyLong_FromLongLong(value));
    return;
  }
}

std::vector<SymbolFate> end_symbols(SourceTree& tree, const SymbolicInputs& inputs) {
  std::vector<SymbolFate> fates;
  const auto text = [&](uint32_t source) { return tree.sources()[source].text(); };
  for (size_t i = 0; inputs.symbols != nullptr && i < inputs.symbols->count(); i++) {
    BackedSymbols& symbols = *inputs.symbols;
    const BackedSymbols::Origin& origin = symbols.origins()[i];
    const Expression symbol = symbols.environment.symbol(i);
    const shapes::Kind kind = symbols.environment.simplify(symbol)->kind;
    SymbolFate& fate = fates.emplace_back();
    fate = {text(origin.source), origin.reads, origin.dimension, symbol->hint.integer, inputs.why[i], false, {}, {}};
    fate.is_fixed = kind == shapes::Kind::kInteger || kind == shapes::Kind::kFloat;
    if (!fate.is_fixed) continue;
    fate.sites = sites_of(tree, symbols, symbol);
    if (fate.is_of_tensor()) restore(*tree.at(origin.source), fate);
    if (origin.reads == BackedSymbols::Reads::kInteger) restore_number(*tree.at(origin.source), fate.hint);
  }
  for (const UnmetMark& mark : inputs.unmet) {
    fates.push_back({text(mark.source->id),
                     BackedSymbols::Reads::kSize,
                     mark.dimension,
                     mark.size,
                     WhySymbol::kMark,
                     true,
                     {},
                     mark.reason});
  }
  return fates;
}

bool are_all_fixed(const std::vector<SymbolFate>& fates, const BackedSymbols& symbols) {
  const auto is_restored = [](const SymbolFate& fate) {
    return fate.is_fixed && (fate.is_of_tensor() || fate.reads == BackedSymbols::Reads::kInteger);
  };
  return symbols.results().empty() && std::ranges::all_of(fates, is_restored);
}

}  // namespace alternator::lift
