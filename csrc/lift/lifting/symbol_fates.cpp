#include "lift/lifting/symbol_fates.h"

#include <algorithm>
#include <cmath>

namespace alternator::lift {

using fake::BackedSymbols;
using shapes::Expression;

static bool is_number(BackedSymbols::Reads reads) {
  return reads == BackedSymbols::Reads::kInteger || reads == BackedSymbols::Reads::kFloat;
}

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
    if (fate.reads == BackedSymbols::Reads::kOffset) spec->offset = PyLong_AsLongLong(fate.hint.get());
    // Strides that follow from sizes that are fixed are.
    if (spec->free_sizes == 0 && std::ranges::find(rules, kAnyStride) == rules.end()) rules.clear();
    guard.tensor = std::move(spec);
  }
}

// NaN equals nothing: the guard over the symbol stays.
static bool is_restorable(Borrowed value) {
  return !PyFloat_CheckExact(value.get()) || !std::isnan(PyFloat_AS_DOUBLE(value.get()));
}

static void restore_number(Source& source, Borrowed value) {
  if (!is_restorable(value)) return;
  for (Guard& guard : source.guards) {
    if (guard.kind != GuardKind::kType || Borrowed(guard.object) != Borrowed(value.type())) continue;
    guard.kind = GuardKind::kEquals;
    guard.object = Ref::share(value);
    return;
  }
}

static std::string torchs_name(const Source& source, BackedSymbols::Reads reads, uint16_t dimension) {
  const std::string name = dynamo_name(source, source.text());
  return reads == BackedSymbols::Reads::kSize ? name + ".size()[" + std::to_string(dimension) + "]" : name;
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
    fate = {text(origin.source),
            origin.reads,
            origin.dimension,
            BackedSymbols::hint_of(symbol),
            inputs.why[i],
            false,
            {},
            {}};
    fate.is_fixed = kind == shapes::Kind::kInteger || kind == shapes::Kind::kFloat;
    fate.torchs_name = torchs_name(*tree.at(origin.source), origin.reads, origin.dimension);
    fate.given = symbols.given()[i];
    if (symbol->sort() == shapes::Sort::kInteger) fate.found = symbols.environment.facts().interval(symbol);
    fate.has_range = inputs.has_range[i];
    if (!fate.is_fixed && !fate.is_narrowed()) continue;
    fate.sites = sites_of(tree, symbols, symbol);
    if (!fate.is_fixed) continue;
    if (fate.is_of_tensor()) restore(*tree.at(origin.source), fate);
    if (is_number(origin.reads)) restore_number(*tree.at(origin.source), fate.hint);
  }
  for (const UnmetMark& mark : inputs.unmet) {
    SymbolFate& fate = fates.emplace_back();
    fate = {text(mark.source->id),
            BackedSymbols::Reads::kSize,
            mark.dimension,
            checked(PyLong_FromLongLong(mark.size)),
            mark.why,
            true,
            {},
            mark.reason};
    fate.torchs_name = torchs_name(*mark.source, fate.reads, fate.dimension);
    if (mark.site.code) fate.sites.push_back({Ref(mark.site.code), mark.site.index});
  }
  return fates;
}

bool are_all_fixed(const std::vector<SymbolFate>& fates, const BackedSymbols& symbols) {
  const auto is_restored = [](const SymbolFate& fate) {
    return fate.is_fixed && (fate.is_of_tensor() || (is_number(fate.reads) && is_restorable(fate.hint)));
  };
  return symbols.results().empty() && std::ranges::all_of(fates, is_restored);
}

}  // namespace alternator::lift
