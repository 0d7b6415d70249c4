// Switches that break replay. Names: a row of rebuild.def ("list": every run returns the trace's own object), an
// instruction that fills or writes back ("ListExtend": it is omitted), and a few families. Programs built before a
// switch keep their instructions.
#pragma once

#include "py/switches.h"

namespace alternator::replay {

// ALTERNATOR_WITHOUT_REPLAY=list,CellSet
Switches& switches();
inline bool is_disabled(std::string_view name) { return kHasMutants && switches().is_off(name); }

}  // namespace alternator::replay
