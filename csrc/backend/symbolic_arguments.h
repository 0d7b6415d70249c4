// The inputs of a compiled graph with symbols: not those of the recorded program, see graph/export/exported_inputs.h.
#pragma once

#include "graph/export/exported_inputs.h"
#include "lift/sources/source.h"

namespace alternator::backend {

struct SymbolicInputs {
  std::vector<graph::ExportedInput> inputs;
  std::vector<size_t> positions;                        // ... among the values of an entry
  std::vector<const lift::Source*> sources;             // ... null: a number
  std::vector<shapes::Expression> computed;             // the numbers that the graph computes from its symbols
  std::vector<const lift::Source*> sources_of_symbols;  // by number

  // `needed`: the values of an entry, which the results of BackedSymbols follow. The guard program takes the guards of
  // the sources over: here they still have them.
  SymbolicInputs(const graph::Program& program, lift::SourceTree& tree, const std::vector<lift::Source*>& needed);

  // False: all of its symbols were specialized on.
  bool any() const;
  // The numbers of the symbols that it depends on.
  std::vector<uint32_t> symbols() const;
  // Of a call. A float becomes a tensor, which the graph takes the value of.
  std::vector<Ref> arguments(const std::vector<Ref>& values) const;
};

// Whether a tensor of symbolic size shares its memory with another input: whether they overlap depends on the sizes.
bool shares_memory(const SymbolicInputs& inputs, const std::vector<Ref>& values);

}  // namespace alternator::backend
