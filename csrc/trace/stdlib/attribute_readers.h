// Callables that read attributes natively (operator.attrgetter, getattr, ...), called or handed to native code.
#pragma once

#include "py/ref.h"

namespace alternator::trace {

// An operator.attrgetter or methodcaller: native code may not be given one that reads pre-existing objects.
bool reads_attributes(Borrowed value);

}  // namespace alternator::trace
