// Stand-ins for what nobody has read yet.
#pragma once

#include "lift/lifting/lifter.h"

namespace alternator::trace {

// A tuple that is taken apart at once: what nobody reads of it needs no guard. A loop over enumerate() goes on with
// another number each time. Null: `stand_in` is none for a tuple of that many.
Ref lazy_elements(lift::Lifter& lifter, Borrowed stand_in, int count);

}  // namespace alternator::trace
