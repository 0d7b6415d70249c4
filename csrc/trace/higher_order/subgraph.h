// Subgraphs: the branches of a conditional, the body of a loop.
#pragma once

#include "trace/core/tracer.h"

#include <memory>
#include <vector>

namespace alternator::trace {

struct Arm {
  std::unique_ptr<graph::Program> program;
  Ref result;
  std::vector<Ref> leaves;
  uint8_t effects = graph::kPure;

  // The tensors of the enclosing program that it uses, in the order of first use.
  std::vector<at::Tensor> inputs() const;
  // No result may be a view of an input. (Checked for subgraphs that are traced on tensors of the enclosing program.)
  void check_aliases(const char* what) const;
};

[[noreturn]] void refuse_subgraph(const char* what, const std::string& why);
// The same structure with other tensors, taken from a tuple starting at `next`.
Ref unflatten_result(Borrowed value, Borrowed leaves, Py_ssize_t* next);
bool has_same_metadata(const at::Tensor& one, const at::Tensor& other);
// An FX graph whose inputs are these tensors, in this order.
Ref graph_of(graph::Program& program, const std::vector<at::Tensor>& inputs);
// A new tensor like `like`, which requires a gradient where a result computed from `inputs` would.
at::Tensor make_result(const at::Tensor& like, at::IntArrayRef sizes, at::IntArrayRef strides,
                       const std::vector<at::Tensor>& inputs);
Ref tuple_of(const std::vector<at::Tensor>& tensors);

}  // namespace alternator::trace
