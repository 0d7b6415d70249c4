// A call whose graph has failed after irreversible mutations.
#pragma once

#include "dispatch/entry.h"

namespace alternator::dispatch {

// What the call has done until the failure, and its position, as an entry whose graph has run already.
struct Recovered {
  std::unique_ptr<Entry> entry;  // null: unknown
  std::vector<Ref> outputs;
  bool has_raised = false;  // the instruction it resumes at has raised; otherwise that is executed again
};
// `failed` was traced from `chain`. It is retraced as far as a point on the path to the node that failed.
Recovered retrace_failure(const Chain& chain, const Entry& failed, graph::Failure& failure);

}  // namespace alternator::dispatch
