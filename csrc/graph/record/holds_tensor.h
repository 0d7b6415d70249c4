// Whether a tensor is reachable from an opaque object.
#pragma once

#include "py/ref.h"

namespace alternator::graph {

// Follows the references that the garbage collector would, except modules, classes and the globals of functions. After
// some thousand objects it gives up and returns true: a hidden fake must not reach a backend.
bool holds_tensor(Borrowed object);

}  // namespace alternator::graph
