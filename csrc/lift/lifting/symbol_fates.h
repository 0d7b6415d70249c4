// What became of the symbols of a trace: which still are, and which the trace has specialized on.
#pragma once

#include "lift/lifting/symbolic_inputs.h"

namespace alternator::lift {

struct SymbolFate {
  std::string source;  // the text of the tensor's or the number's source
  fake::BackedSymbols::Reads reads;
  uint16_t dimension;
  Ref hint;  // an int or a float
  WhySymbol why;
  bool is_fixed;             // the trace is valid for this value only
  std::vector<Site> sites;   // if it is fixed: the instructions that caused it
  std::string reason;        // ... or why it was none in the first place
  shapes::Interval given{};  // of an integer: what is taken to be true of it, and what the trace has made of that
  shapes::Interval found{};
  bool has_range = false;   // a mark of the user's gives a range
  std::string torchs_name;  // "L['x'].size()[0]"

  bool is_of_tensor() const { return fake::BackedSymbols::is_of_tensor(reads); }
  // "x.size(0)"
  std::string text() const;
  // Fewer values than the user has asked for.
  bool is_narrowed() const { return has_range && (found.low > given.low || found.high < given.high); }
};

// At the end of a trace. Sizes and numbers that are fixed are guarded like those that were never symbols, in one check
// of the tensor: these guards are restored. `unmet`: symbols that marks demand and that there are not.
std::vector<SymbolFate> end_symbols(SourceTree& tree, const SymbolicInputs& inputs);
// Whether no guard over the symbols is needed after that, and no value of an expression.
bool are_all_fixed(const std::vector<SymbolFate>& fates, const fake::BackedSymbols& symbols);

}  // namespace alternator::lift
