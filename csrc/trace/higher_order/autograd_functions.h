// MyFunction.apply of a torch.autograd.Function: inlined as its forward(), or one node with its own backward().
#pragma once

#include "trace/core/call.h"

#include <string>

namespace alternator::trace {

class Tracer;
struct Forward;

class AutogradFunctions {
 public:
  explicit AutogradFunctions(Tracer& tracer) : t(tracer) {}

  Ref apply(const Call& call);
  Ref apply_transformed(const Call& call);  // under a functorch transform
  static bool wants_gradient(PyObject* const* arguments, size_t count);

  // One is a node with its own backward: a backward pass inside the trace would run that concretely.
  bool applied = false;

 private:
  Forward run_forward(Borrowed cls, PyObject* const* arguments, size_t count);
  Ref apply_forward(Borrowed cls, PyObject* const* arguments, size_t count, const std::string& name);
  template <typename Rehearse>
  Ref apply_whole(Borrowed cls, PyObject* const* arguments, size_t count, const std::string& name,
                  const Rehearse& rehearse);
  void run_vmap_rule(Borrowed cls, PyObject* const* arguments, size_t count, const std::string& name);
  Ref wrap_output(Borrowed output, const Forward& run, const std::string& name);

  Tracer& t;
};

}  // namespace alternator::trace
