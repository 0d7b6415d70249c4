// A graph that failed in the middle: the state of its run, and of the frames that it belongs to. `part` is the program
// that was retraced as far as a point on the path to the node that failed.
#pragma once

#include "graph/record/program.h"
#include "graph/run/program_runner.h"
#include "interpreter/frame_state.h"

#include <vector>

namespace alternator::dispatch {

// Whether the nodes from `first` to the one that failed may run again.
bool may_repeat(const graph::Program& program, size_t first, uint32_t failed);
// Whether the retraced part is a prefix of the program that ran.
bool has_prefix(const graph::Program& whole, const graph::Program& part, uint32_t failed);
// Whether the chain is at the instruction that a node was recorded in. The innermost frame is then moved to that
// instruction from the prefix of it that it stopped before (KW_NAMES, PRECALL).
bool is_at_node(Chain& chain, const graph::Program& program, const graph::Node& node);
// Clears variables of frames that an exception exits at once: those that refer to values the run has freed, or all.
void drop_variables(Chain& chain, const graph::Program& part, const graph::Failure& failure, bool all);
// The outputs of the part. False: a value was freed and cannot be recomputed.
bool take_outputs(const graph::Program& program, const graph::Program& part, graph::Failure* failure,
                  std::vector<Ref>* outputs);

}  // namespace alternator::dispatch
