// torch.compile(shapes_spec=...): which sizes and numbers of the arguments are symbols, and what holds for them. Python
// has the specification (alternator/shapes_spec.py); it is asked before and after a trace only.
#pragma once

#include "dispatch/compiled_call.h"

namespace alternator::dispatch {

// Of a compile(); null: it has none.
Ref spec_of(const backend::Backend& backend);
// Throws what torch raises where the arguments of a call do not fit.
void check_spec(const Compilation& compilation, const std::vector<Ref>& slots);
// Nothing else is a symbol.
void add_spec(const Compilation& compilation, lift::Dynamism* dynamism);
// What the specification says of the symbols of an entry: guards, so that other calls are checked again.
std::vector<backend::Assumption> spec_conditions(Borrowed spec, const Entry& entry);

}  // namespace alternator::dispatch
