// Python functions that replace native ones which read objects internally (operator.attrgetter, getattr): as callbacks
// of native code they have a frame, which is traced.
#pragma once

#include "py/error.h"

namespace alternator::lift {

Ref stand_in_for(Borrowed callable);
bool is_stand_in(Borrowed code);
// The native function that a Python function replaces; null: it is no such function.
Borrowed stands_in_for(Borrowed function);

}  // namespace alternator::lift
