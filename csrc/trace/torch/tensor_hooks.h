// Hooks on tensors: registered by the residual program, on the tensors that the graph has computed.
#pragma once

#include "trace/core/call.h"

#include <string>

namespace alternator::trace {

class Tracer;

// Whether it is what register_hook returned in a trace.
bool is_hook_handle(Borrowed object);

int init_hooks();

// No hook may observe a gradient that flows to a pre-existing tensor: neither one on the tensor nor one on its
// accumulation. That is guarded; `name` is the call that computes the gradient.
void guard_accumulation(Tracer& tracer, Borrowed leaf, const std::string& name);

class TensorHooks {
 public:
  explicit TensorHooks(Tracer& tracer) : t(tracer) {}

  // Null: it is no call that registers a hook on a tensor.
  Ref call(const Call& call);
  bool is_hook_handle_class(PyTypeObject* type) const;

  bool registered = false;  // one was registered

 private:
  Tracer& t;
};

}  // namespace alternator::trace
