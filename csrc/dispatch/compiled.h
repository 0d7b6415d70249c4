// The compiled callable.
#pragma once

#include "dispatch/entry.h"
#include "dispatch/init.h"
#include "dispatch/shared_cache.h"

namespace alternator::dispatch {

// reason -> count, since the last reset.
Ref break_counts();
void reset_counters();

// A callable with vectorcall. With `run_only` it uses the entries of other compile()s of the function, and traces
// nothing. `self`, `backend` and `listener` may be None. Events of the listener: events.h. `store`: common to all that
// share their entries. `of_class`: `self` itself is called, and `function` is type(self).__call__; once the class has
// another one, calls run eagerly.
Ref make_compiled(Borrowed function, Borrowed self, Borrowed backend, bool fullgraph,
                  std::optional<size_t> most_entries, Borrowed listener, bool run_only, std::shared_ptr<Store> store,
                  bool of_class, std::optional<bool> dynamic);
// Drops the entries of every compiled callable.
void reset_all();

}  // namespace alternator::dispatch
