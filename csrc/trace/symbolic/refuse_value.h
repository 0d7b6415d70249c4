// What stands in a trace for a value that nobody knows refuses to be looked at.
#pragma once

#include "trace/core/tracer.h"

namespace alternator::trace {

// For slots of its type: the trace stops. Returns null, with an exception set. `what` is for who has got hold of it
// outside of a trace.
inline PyObject* refuse(report::Reason reason, const char* what, const char* context = "") {
  if (Tracer* tracer = Tracer::current(); tracer != nullptr && !tracer->stopped) {
    tracer->stop_here(reason, context);
  } else if (!PyErr_Occurred()) {
    PyErr_Format(PyExc_SystemError, "alternator: %s of a trace was used outside of it", what);
  }
  return nullptr;
}

}  // namespace alternator::trace
