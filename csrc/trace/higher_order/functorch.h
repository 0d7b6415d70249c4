// TODO
#pragma once
#include <vector>
#include "fake/functorch_state.h"

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

class Functorch {
 public:
  explicit Functorch(Tracer& tracer) : t(tracer) {}
  Ref call_recorded(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  void note();
  int subgraph_depth = 0;                  // branches that are being traced
  fake::TransformState transforms_before;  // at the beginning of the trace
  bool transformed = false;                // they differ from transforms_before_, or a branch is being traced

 private:
  // Iterators in the arguments of torch.autograd.grad, which consumes them before anything else, become tuples. False:
  // there are none.
  bool use_iterators(PyObject* const* arguments, size_t positional, Borrowed keyword_names,
                     std::vector<PyObject*>* given, std::vector<Ref>* tuples);
  Tracer& t;
};

}  // namespace alternator::trace
