// Switches that disable guards, one kind at a time. Names: a row of guards.def ("kLength"), "identity" (distinct
// objects stay distinct), a row of ambient.def ("ambient.grad_mode"); of the sizes that are symbols, the conditions of
// the trace, those of compilers, the given ranges. Programs built before a switch keep their guards.
#pragma once

#include "py/switches.h"

namespace alternator::guards {

// ALTERNATOR_WITHOUT_GUARDS=kLength,identity
Switches& switches();
inline bool is_disabled(std::string_view name) { return kHasMutants && switches().is_off(name); }

}  // namespace alternator::guards
