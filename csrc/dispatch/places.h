// The places of a compilation where a chain of frames goes on, and the entries there.
#pragma once

#include "dispatch/driver.h"

namespace alternator::dispatch {

// Where `chain` goes on, whose values these are; `last` is the entry that stopped there.
std::shared_ptr<Place> place_of(Compilation& compilation, const Chain& chain, const std::vector<PyObject*>& values,
                                Entry& last);
// The entry is found no more, here or by others. False: it was not here; another thread may have called reset().
bool drop(Place& place, const std::shared_ptr<Entry>& entry);
// The next call asks this one first, if it is still here.
void look_there_first(Place& place, const std::shared_ptr<Entry>& entry);

}  // namespace alternator::dispatch
