// Parts of a graph that are graphs of their own: the arms of a conditional, the body of a loop.
#pragma once

#include "trace/core/tracer.h"

#include <memory>
#include <vector>

namespace alternator::trace {

struct Tracer::Arm {
  std::unique_ptr<graph::Program> program;
  Ref result;
  std::vector<Ref> leaves;
  uint8_t effects = graph::kPure;

  // What it uses of the program around it, in the order of first use.
  std::vector<at::Tensor> inputs() const;
  // Nothing that it gives may be a view of what it is given. (Asked of those that are traced on tensors of the
  // program.)
  void check_aliases(const char* what) const;
};

[[noreturn]] void refuse_part(const char* what, const std::string& why);
// The same structure over other tensors, taken from a tuple from `next` on.
Ref unflatten_part(Borrowed value, Borrowed leaves, Py_ssize_t* next);
bool looks_like(const at::Tensor& one, const at::Tensor& other);
// A graph that takes these tensors, in this order.
Ref graph_of(graph::Program& program, const std::vector<at::Tensor>& inputs);
// A new tensor like that one, with a gradient where a result of these would have one.
at::Tensor made_from(const at::Tensor& like, at::IntArrayRef sizes, at::IntArrayRef strides,
                     const std::vector<at::Tensor>& inputs);
Ref tuple_of(const std::vector<at::Tensor>& tensors);

}  // namespace alternator::trace
