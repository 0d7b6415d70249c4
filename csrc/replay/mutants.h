// Switches that break replay on purpose: `make test-mutants` proves with them that a test notices.
//
// Names: a row of rebuild.def ("list": the trace's own object is given out on every run), an instruction that fills or
// writes back ("ListExtend": it is left out), and a few families. They exist in a build with ALTERNATOR_MUTANTS only;
// programs built before a switch keep their instructions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace alternator::replay {

// Every name that there is.
std::vector<std::string> mutant_names();

#ifdef ALTERNATOR_MUTANTS
inline constexpr bool kHasMutants = true;
// False: there is no such name. Also read from the environment at start: ALTERNATOR_WITHOUT_REPLAY=list,CellSet
bool set_mutant(std::string_view name, bool disabled);
bool is_disabled(std::string_view name);
#else
inline constexpr bool kHasMutants = false;
inline bool set_mutant(std::string_view, bool) { return false; }
constexpr bool is_disabled(std::string_view) { return false; }
#endif

}  // namespace alternator::replay
