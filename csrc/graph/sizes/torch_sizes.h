// Sizes that torch's symbolic shapes tell of the results of one call: of an operator of torch.ops, which anyone may
// define, with a function for fake tensors.
#pragma once

#include "graph/sizes/size_solver.h"

namespace alternator::graph {

// Gives sizes_of() of alternator/call_sizes.py.
void set_torch_sizes(Ref (*load)());
// It is not loaded inside of a trace, which would see what else the import changes. Whether a trace of this thread has
// lacked it since the last call.
bool has_lacked_torch_sizes();
void load_torch_sizes();

// Finds the sizes of all tensors of the result, which were made by this call; the conditions under which they are so
// are guarded. False: torch does not know them either.
bool ask_torch(SizeSolver& solver, const Node& node, Borrowed result);
// Whether it did so for this result of the call, which is then contiguous in all calls.
bool was_told_by_torch(const SizeSolver& solver, const Node& node, uint32_t tensor);

}  // namespace alternator::graph
