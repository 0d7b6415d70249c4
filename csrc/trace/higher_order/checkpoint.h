// TODO
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

struct CheckpointCall;
// torch.utils.checkpoint.checkpoint (checkpoint.cpp).
Ref call_checkpoint(Tracer& t, PyObject* const* arguments, size_t positional, Borrowed keyword_names);

}  // namespace alternator::trace
