// What an exported graph with symbolic sizes takes: other inputs than the recorded program.
//
// Compilers expect each symbol as an input of its own, and compute with them in the graph; the recorded program gets
// the values of the expressions. Of a program without symbols both take the same.
#pragma once

#include "graph/record/program.h"

#include <vector>

namespace alternator::graph {

struct ExportedInput {
  uint32_t declared = kNowhere;                    // position in Program::declared; kNowhere: a symbol
  shapes::Expression number = nullptr;             // an int symbol; or a float, which may be any expression
  std::vector<shapes::Expression> sizes, strides;  // of a tensor, simplified; empty: it has none that are symbolic
};

// In order: symbols come before what they are needed for. A number that is computed from symbols is none of them.
std::vector<ExportedInput> exported_inputs(const Program& program);
// Whether there are symbols.
bool has_symbolic_inputs(const Program& program);

}  // namespace alternator::graph
