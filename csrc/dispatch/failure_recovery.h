// A graph that failed in the middle: what is left of its run, and of the frames that it belongs to. `part` is what was
// recorded again as far as a point on the way to the node that failed.
#pragma once

#include "graph/record/program.h"
#include "graph/run/program_runner.h"
#include "interpreter/frame_state.h"

#include <vector>

namespace alternator::dispatch {

// What the nodes from `first` to the one that failed have done may be done again.
bool may_repeat(const graph::Program& program, size_t first, uint32_t failed);
// What was recorded again is what has run.
bool begins_like(const graph::Program& whole, const graph::Program& part, uint32_t failed);
// Whether the chain stands at the instruction that a node was recorded in. The innermost frame then says which one it
// is: it stood before the first part of it (KW_NAMES, PRECALL).
bool stands_at(Chain& chain, const graph::Program& program, const graph::Node& node);
// Takes the variables from frames that an exception leaves at once: those that lead to what the run has dropped, or
// all.
void drop_variables(Chain& chain, const graph::Program& part, const graph::Failure& failure, bool all);
// What the part returns. False: something is not there any more, and cannot be computed again.
bool take_outputs(const graph::Program& program, const graph::Program& part, graph::Failure* failure,
                  std::vector<Ref>* outputs);

}  // namespace alternator::dispatch
