// Names of classes and functions that occur in messages: a class may be renamed, and CPython's messages contain its
// current name.
#pragma once

#include <string>
#include <unordered_set>

namespace alternator::lift {

class Lifter;

// CPython's messages that the program may see: guards the names of the pre-existing classes and functions in them.
void guard_names_in(Lifter& lifter, const std::unordered_set<std::string>& texts);

}  // namespace alternator::lift
