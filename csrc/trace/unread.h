// Stand-ins for what nobody has read yet.
#pragma once

#include "lift/lifter.h"

namespace alternator::trace {

// Stands for `value`, which is found at `source`; lifted where it is read (Tracing::local).
Ref make_unread(lift::Lifter& lifter, Borrowed value, lift::Source* source);

// A tuple that is taken apart at once: what nobody reads of it needs no guard. A loop over enumerate() goes on with
// another number each time. Null: `stand_in` is none for a tuple of that many.
Ref unread_elements(lift::Lifter& lifter, Borrowed stand_in, int count);

}  // namespace alternator::trace
