// Operators whose results are as long as there are nonzero elements in a tensor: nonzero, and indexing with masks.
#pragma once

#include "fake/kernels.h"

namespace alternator::fake {

// Replaces the arguments by the outputs, which have a new unbacked symbol as a size: the same one for a tensor that has
// not been written since. False: the arguments are untouched, and torch's FakeTensorMode must decide.
bool compute_counted(const Call& call);

}  // namespace alternator::fake
