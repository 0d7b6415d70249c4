// Observable finalization: objects that the traced program has removed from the locations that held them.
#pragma once

#include "lift/lifting/lifter.h"

namespace alternator::trace {

// Whether a container or another location that held this pre-existing object does not hold it any more: it may have
// been deallocated.
bool is_dropped(const lift::Lifter& lifter, Borrowed original);

// Whether dropping a suspended frame's slot would observably finalize its value; to be called before the value is
// lifted.
bool is_observably_finalized_in_slot(Borrowed value);
// The same for the value or anything in it, whatever other references exist.
bool holds_observably_finalized(Borrowed value);

}  // namespace alternator::trace
