// The rules of size_solver.h: what a torch call makes of the sizes of its arguments.
#pragma once

#include "graph/sizes/size_solver.h"

namespace alternator::graph {

// The sizes of one result of a recorded call; nothing: there is no rule for it, or its arguments are not as the rule
// expects. `tensor` is the result: its fake has the rank, and the hints of its sizes.
std::optional<Sizes> solve_by_rule(SizeSolver& solver, const Node& node, uint32_t tensor);

// Guards what the structure of a call's result tells of sizes: how many tensors it is, or how many dimensions it has.
// `count`: of its tensors. False: there is no rule for it.
bool guard_structure(SizeSolver& solver, const Node& node, int64_t count);

// The sizes of the argument of a call that changes them in place (x.t_()), once SizeSolver::note_restrided has begun.
std::optional<Sizes> sizes_after(SizeSolver& solver, const Node& node);

// Whether the tensor is contiguous in all calls. False: not known.
bool is_always_contiguous(SizeSolver& solver, uint32_t tensor);

// Whether it has the same sizes and strides in all calls. False: not known.
bool has_constant_layout(SizeSolver& solver, uint32_t tensor);

// The callable of a node as the tables of this folder name it.
PyObject* identity_of(const Node& node);
bool has_keyword(const Node& node, const char* name);

}  // namespace alternator::graph
