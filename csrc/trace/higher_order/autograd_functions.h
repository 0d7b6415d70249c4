// TODO
#pragma once
#include <string>

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

// autograd_functions.cpp
struct Forward;
class AutogradFunctions {
 public:
  explicit AutogradFunctions(Tracer& tracer) : t(tracer) {}
  Ref call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref call_transformed(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
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
