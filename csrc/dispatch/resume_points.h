// The resume points of a compilation, and the entries there.
#pragma once

#include "dispatch/compiled_call.h"

namespace alternator::dispatch {

// The resume point of `chain` with these values; `last` is the entry that stopped there.
std::shared_ptr<ResumePoint> resume_point_of(Compilation& compilation, const Chain& chain,
                                             const std::vector<PyObject*>& values, Entry& last);
// Removes an entry, also from the shared cache. False: it was not here; another thread may have called reset().
bool drop(ResumePoint& point, const std::shared_ptr<Entry>& entry);
void add_entry(ResumePoint& point, const std::shared_ptr<Entry>& entry);
// The one that was used or made last; null: there are none.
std::shared_ptr<Entry> recent_entry(const ResumePoint& point);
// Makes the next call check this entry first, if it is still here. Entries without symbols come before those with.
void move_to_front(ResumePoint& point, const std::shared_ptr<Entry>& entry);

}  // namespace alternator::dispatch
