#include "trace/calls/python_functions.h"
#include "trace/calls/call_dispatch.h"
#include "trace/calls/marked_functions.h"
#include "trace/calls/reflective_builtins.h"
#include "trace/core/tracer.h"
#include "trace/torch/module_attributes.h"

#include "trace/calls/natives.h"

namespace alternator::trace {

// Its frame is traced: the frame evaluator of the thread runs it.
static Ref run_frame(Tracer& t, const Call& call) {
  // The caller may still report about its own instruction; the callee's frame is gone then.
  cpython::Frame* const caller = t.current_frame;
  const int index = t.current_index;
  Ref result = call.run();
  t.current_frame = caller;
  t.current_index = index;
  return checked(std::move(result));
}

Ref call_function(Tracer& t, const Call& call) {
  if (Ref result = call_marked(t, call)) return result;
  const Natives& natives = Natives::table();
  if (call.callable == Borrowed(natives.tensor_hash) && call.has_positional(1))
    return hash_of(t, call.arguments[0], natives.hash);
  PyObject* const code = PyFunction_GET_CODE(call.callable.get());
  if (code == natives.module_getattr_code && call.has_positional(2)) {
    if (Ref value = module_attribute(t, call.arguments[0], call.arguments[1])) return value;
  }
  // What *args and **kwargs collect leaves the locals.
  if ((reinterpret_cast<PyCodeObject*>(code)->co_flags & (CO_VARARGS | CO_VARKEYWORDS)) != 0) escape_all(t, call);
  return run_frame(t, call);
}

}  // namespace alternator::trace
