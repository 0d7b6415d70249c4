// Switches that take away a row of the lifting table: what the row is about is passed on as it is, without a source or
// a guard. `make test-mutants` proves with them that a test notices. They exist in a build with ALTERNATOR_MUTANTS
// only.
#pragma once

#include "py/ref.h"

#include <string>
#include <string_view>
#include <vector>

namespace alternator::lift {

// Every name that there is: the rows of rows.def as "lift.tuple".
std::vector<std::string> mutant_names();

#ifdef ALTERNATOR_MUTANTS
// False: there is no such name.
bool set_mutant(std::string_view name, bool disabled);
bool is_switched_off(Borrowed value);
#else
inline bool set_mutant(std::string_view, bool) { return false; }
inline bool is_switched_off(Borrowed) { return false; }
#endif

}  // namespace alternator::lift
