// What AOTAutograd would compile to something that differs from eager.
#pragma once

#include "graph/record/program.h"

#include <string>

namespace alternator::backend {

// Inputs that overlap and are mutated: AOTAutograd misses some of these overlaps, Inductor takes copies of such inputs
// for the memory itself, and its graph cache does not key on how they overlap. `inputs`: the real ones.
bool writes_what_inputs_share(const graph::Program& program, Borrowed inputs);
// The torch.autograd.Functions that it applies: a tuple of classes.
Ref autograd_functions(const graph::Program& program);
// Why AOTAutograd must not see the graph; empty: it may.
std::string aot_incompatibility(const graph::Program& program, Borrowed inputs, bool writes_shared);

}  // namespace alternator::backend
