// Objects that the program has taken from where they were.
#pragma once

#include "lift/lifting/lifter.h"

namespace alternator::trace {

// Whether a container, or a place of another kind, that held this outside object does not hold it any more: it may be
// gone.
bool is_dropped(const lift::Lifter& lifter, Borrowed original);

// Of what a slot of a stopped frame holds, before anything is made of it.
bool is_observably_finalized_in_slot(Borrowed value);
// The same, whoever else holds it or what is in it.
bool holds_observably_finalized(Borrowed value);

}  // namespace alternator::trace
