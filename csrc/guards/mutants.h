// Switches that make guards disappear, one kind at a time: `make test-mutants` proves with them that a test notices
// each.
//
// Names: a row of guards.def ("kLength"), "identity" (objects that were two are two), a row of ambient.def
// ("ambient.grad_mode"). They exist in a build with ALTERNATOR_MUTANTS only; programs built before a switch keep their
// guards.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace alternator::guards {

// Every name that there is.
std::vector<std::string> mutant_names();

#ifdef ALTERNATOR_MUTANTS
inline constexpr bool kHasMutants = true;
// False: there is no such name. Also read from the environment at start: ALTERNATOR_WITHOUT_GUARDS=kLength,identity
bool set_mutant(std::string_view name, bool disabled);
bool is_disabled(std::string_view name);
#else
inline constexpr bool kHasMutants = false;
inline bool set_mutant(std::string_view, bool) { return false; }
constexpr bool is_disabled(std::string_view) { return false; }
#endif

}  // namespace alternator::guards
