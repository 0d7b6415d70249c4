// The places of a compilation where a chain of frames goes on, and the entries there.
#pragma once

#include "dispatch/call.h"

namespace alternator::dispatch {

// Where `chain` goes on, whose values these are; `last` is the entry that stopped there.
std::shared_ptr<ResumePoint> place_of(Compilation& compilation, const Chain& chain,
                                      const std::vector<PyObject*>& values, Entry& last);
// The entry is found no more, here or by others. False: it was not here; another thread may have called reset().
bool drop(ResumePoint& place, const std::shared_ptr<Entry>& entry);
// The next call asks this one first, if it is still here.
void look_there_first(ResumePoint& place, const std::shared_ptr<Entry>& entry);

}  // namespace alternator::dispatch
