// The compiled callable.
#pragma once

#include "dispatch/entry.h"
#include "dispatch/init.h"

namespace alternator::dispatch {

// reason -> how often, since the last reset.
Ref break_counts();
void reset_counters();

// A callable with vectorcall. `self`, `backend` and `listener` may be None; `on_break` is called with the name and text
// of a break. The listener has recompiling(reasons), before a trace that older entries did not make unnecessary, and
// added(compiled), after every new entry.
Ref make_compiled(Borrowed function, Borrowed self, Borrowed backend, bool fullgraph, size_t most_entries,
                  Borrowed on_break, Borrowed listener);
// Forgets the entries of every compiled callable.
void reset_all();

}  // namespace alternator::dispatch
