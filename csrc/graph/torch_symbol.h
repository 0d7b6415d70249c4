// Numbers that only a run knows (fake/symbol.h) as torch knows them: torch.SymInt and torch.SymFloat of a ShapeEnv, one
// for each recording that has such numbers.
#pragma once

#include "fake/symbol.h"

namespace alternator::graph {

using fake::is_symbol;

// The session is off while these run.
Ref make_shape_env();
// A new torch.SymInt or SymFloat that nothing is known about.
Ref make_torch_symbol(Borrowed shape_env, bool is_float);
bool is_torch_symbol(Borrowed object);
// The number that a torch symbol is known to be; null: none is.
Ref known_number(Borrowed torch_symbol);
// What FX's metadata calls the binding of a new symbol: {u0: ()}.
Ref unbacked_binding(Borrowed torch_symbol);

}  // namespace alternator::graph
