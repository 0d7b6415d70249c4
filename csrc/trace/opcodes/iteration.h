// Iteration over what the trace found, not made.
#pragma once

#include "lift/lifting/iterators.h"

namespace alternator::trace {

class Tracer;

// The next value of a pre-existing iterator (Iterators::is_preexisting), unread. Null without an error: it has ended.
Ref next_of_preexisting(Tracer& t, Borrowed iterator);

}  // namespace alternator::trace
