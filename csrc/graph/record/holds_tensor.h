// Whether a tensor can be reached from an object that we know nothing of.
#pragma once

#include "py/ref.h"

namespace alternator::graph {

// Follows what the garbage collector would follow, without modules, classes and the globals of functions. Gives up
// after some thousand objects and then answers yes: a fake that hides in there must not reach a backend.
bool holds_tensor(Borrowed object);

}  // namespace alternator::graph
