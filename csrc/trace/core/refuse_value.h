// Values that are unknown while tracing (deferred values, hook handles, identities) refuse to be read.
#pragma once

#include "trace/core/tracer.h"

namespace alternator::trace {

// For the slots of their types: stops the trace. Returns null, with an exception set. `what` names the value for code
// that uses it outside of a trace.
inline PyObject* refuse(report::Reason reason, const char* what, const char* context = "") {
  if (Tracer* tracer = Tracer::current(); tracer != nullptr && !tracer->result.stopped) {
    tracer->stop_here(reason, context);
  } else if (!PyErr_Occurred()) {
    PyErr_Format(PyExc_SystemError, "alternator: %s of a trace was used outside of it", what);
  }
  return nullptr;
}

}  // namespace alternator::trace
