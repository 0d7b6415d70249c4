// Wraps a callable that generated code cannot reach by its qualified name (a bound method such as MyFunction.apply, a
// local function of torch) under a unique name.
#pragma once

#include "py/error.h"

namespace alternator::graph {

// Whether FX may refer to the callable directly.
bool can_be_named(Borrowed callable);

// Calls `callable`; __name__ is derived from its qualified name, __module__ is ours.
Ref make_named_callable(Borrowed callable);

}  // namespace alternator::graph
