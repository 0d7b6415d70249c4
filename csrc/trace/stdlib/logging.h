// The module logging: loggers are found and asked without their locks; a record is made by the residual program.
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

// What is shown depends on this object: a write of the program to it is a break.
void check_unwritten(Tracer& t, Borrowed object);

}  // namespace alternator::trace
