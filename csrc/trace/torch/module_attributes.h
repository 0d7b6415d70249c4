// Attribute reads of torch.nn.Module without its Python code.
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

// Module.__getattr__(name). Null: the function itself has to run.
Ref module_attribute(Tracer& t, Borrowed module, Borrowed name);

}  // namespace alternator::trace
