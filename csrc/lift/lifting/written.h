// Whether the program has written to an outside container or an object's attributes, which have it not yet.
#pragma once

#include "lift/lifting/shadow.h"

namespace alternator::lift {

bool is_written(const Shadow& shadow);

}  // namespace alternator::lift
