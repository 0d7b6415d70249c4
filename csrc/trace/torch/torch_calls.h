// TODO
#pragma once
#include <string>
#include <vector>

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

// A call that becomes a node.
Ref call_torch(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
// After torch has raised: stops as data-dependent, or with the reason that torch gives.
void stop_for_torch(Tracer& t, const std::string& what);

}  // namespace alternator::trace
