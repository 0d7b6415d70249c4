// The compiled callable.
#pragma once

#include "dispatch/entry.h"
#include "dispatch/init.h"
#include "dispatch/shared_cache.h"

namespace alternator::dispatch {

// reason -> how often, since the last reset.
Ref break_counts();
void reset_counters();

// A callable with vectorcall. With `run_only` it uses what other compile()s of the function know, and traces nothing.
// `self`, `backend` and `listener` may be None. What the listener is told: events.h. `store`: for all that share their
// entries. `of_class`: `self` itself is called, and `function` is what its class
// has for that now; once it has another one, calls run as they are.
Ref make_compiled(Borrowed function, Borrowed self, Borrowed backend, bool fullgraph, size_t most_entries,
                  Borrowed listener, bool run_only, std::shared_ptr<Store> store, bool of_class);
// Forgets the entries of every compiled callable.
void reset_all();

}  // namespace alternator::dispatch
