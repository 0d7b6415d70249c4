// Calls of torch functions and tensor methods: what becomes a node, and how the trace stops where torch raises.
#pragma once

#include "trace/core/call.h"

#include <string>

namespace alternator::trace {

class Tracer;

// A call that becomes a node.
Ref call_torch(Tracer& t, const Call& call);
inline Ref call_torch(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t positional,
                      Borrowed keyword_names) {
  return call_torch(t, {callable, arguments, positional, keyword_names});
}
// Before anything is traced: resolves what torch calls are compared with.
void load_torch_calls();
// After torch has raised: stops as data-dependent, or with the reason that torch gives.
[[noreturn]] void stop_for_torch(Tracer& t, const std::string& what);

}  // namespace alternator::trace
