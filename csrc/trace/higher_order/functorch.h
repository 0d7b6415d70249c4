// functorch transforms in a trace: the nodes that enter, leave and differentiate, and the state they begin from.
#pragma once

#include "fake/functorch_state.h"
#include "trace/core/call.h"

#include <vector>

namespace alternator::trace {

class Tracer;

class Functorch {
 public:
  explicit Functorch(Tracer& tracer) : t(tracer) {}

  // A torch function that no torch-function mode sees: a primitive of a transform, or torch.autograd.grad.
  Ref call_recorded(const Call& call);
  // After anything that may have changed the transforms.
  void note();

  int subgraph_depth = 0;                  // branches that are being traced
  fake::TransformState transforms_before;  // at the beginning of the trace
  bool transformed = false;                // they differ from transforms_before, or a branch is being traced

 private:
  // Iterators in the arguments of torch.autograd.grad, which consumes them before anything else, become tuples. False:
  // there are none.
  bool use_iterators(const Call& call, std::vector<PyObject*>* given, std::vector<Ref>* tuples);

  Tracer& t;
};

}  // namespace alternator::trace
