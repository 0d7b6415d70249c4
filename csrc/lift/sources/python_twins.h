// Functions of Python's in place of native ones that read objects by themselves (operator.attrgetter, getattr): what
// native code is given to call then has a frame, which is traced.
#pragma once

#include "py/error.h"

namespace alternator::lift {

Ref stand_in_for(Borrowed callable);
bool is_stand_in(Borrowed code);
// What a function stands in for; null: it is no such function.
Borrowed stands_in_for(Borrowed function);

}  // namespace alternator::lift
