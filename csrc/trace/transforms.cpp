// functorch's transforms: vmap, grad, vjp, jvp and what is made of them. Their own Python code is traced like any
// other; entering and leaving a transform, wrapping and unwrapping a tensor are nodes, in the order of the program.
#include "trace/tracer.h"

#include "graph/mode.h"
#include "trace/natives.h"

namespace alternator::trace {

Ref Tracer::call_recorded(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  const std::string name = native_name(callable);
  // No mode sees these calls, and ours would see what others make of the calls inside.
  if (!recorder.is_silent() && !graph::is_top_mode(recorder.mode()))
    stop(report::Reason::native_call, name + " under a torch-function mode of the program's");
  // Which message it is belongs to no guard.
  if (transforms_before_.hooks_message && name.ends_with("disabled_error_message"))
    stop(report::Reason::native_call, name);
  Ref result = call_torch(callable, arguments, positional, keyword_names);
  note_transforms();
  return result;
}

void Tracer::note_transforms() { transformed_ = arms_ > 0 || fake::TransformState::now() != transforms_before_; }

}  // namespace alternator::trace
