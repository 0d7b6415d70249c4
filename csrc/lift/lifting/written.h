// Whether the program has written to the private copy of a pre-existing container or instance dict.
#pragma once

#include "lift/lifting/shadow.h"

namespace alternator::lift {

bool is_written(const Shadow& shadow);

}  // namespace alternator::lift
