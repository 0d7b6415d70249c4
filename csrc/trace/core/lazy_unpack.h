// Lazy values: objects that have not been read yet.
#pragma once

#include "lift/lifting/lifter.h"

namespace alternator::trace {

// A tuple that is unpacked at once: elements that are never read need no guard, so a loop over enumerate() may resume
// with another index each time. Null: `value` is no lazy tuple of `count` elements.
Ref lazy_elements(lift::Lifter& lifter, Borrowed value, int count);

}  // namespace alternator::trace
