// What cannot be recorded, as a Python exception: alternator._C.graph.RecordError. A tracer turns it into a break.
#pragma once

#include "py/error.h"

#include <string>

namespace alternator::graph {

// The class, created on first use.
Borrowed record_error_class();

// Sets RecordError and throws PyError.
[[noreturn]] void record_error(const std::string& message);

}  // namespace alternator::graph
