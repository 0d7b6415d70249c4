// Subgraphs: the branches of a conditional, the body of a loop.
#pragma once

#include "trace/core/tracer.h"
#include "trace/soundness/reachable.h"

#include <initializer_list>
#include <memory>
#include <vector>

namespace alternator::trace {

struct Subgraph {
  std::unique_ptr<graph::Program> program;
  Ref result;
  std::vector<Ref> leaves;
  uint8_t effects = graph::kPure;

  // The tensors of the enclosing program that it uses, in the order of first use.
  std::vector<at::Tensor> inputs() const;
  // No result may be a view of an input. (Checked for subgraphs that are traced on tensors of the enclosing program.)
  void check_aliases(const char* what) const;
};

using Tensors = std::vector<at::Tensor>;

// Traces a branch or body on these operands. With `fresh`, they are tensors made for it, which it declares as inputs.
Subgraph trace_subgraph(Tracer& t, const char* what, Borrowed function, Borrowed operands, bool fresh = false);

[[noreturn]] void refuse_subgraph(const char* what, const std::string& why);
// The same structure with other tensors, taken from a tuple starting at `next`.
Ref unflatten_result(Borrowed value, Borrowed leaves, Py_ssize_t* next);
bool has_same_metadata(const at::Tensor& one, const at::Tensor& other);
// An FX graph whose inputs are these tensors, in this order.
Ref graph_of(graph::Program& program, const Tensors& inputs);
// Makes a graph with one output return the tensor itself, not a tuple.
void unwrap_single_output(Borrowed module);
// A new tensor like `like`, which requires a gradient where a result computed from `inputs` would.
at::Tensor make_result(const at::Tensor& like, at::IntArrayRef sizes, at::IntArrayRef strides, const Tensors& inputs);
Ref tuple_of(const Tensors& tensors);
Tensors concat(Tensors first, const Tensors& second);
std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes);

// From its construction to its end, no graph break is possible.
class SubgraphScope {
 public:
  explicit SubgraphScope(Tracer& tracer);
  // Not called where the trace stops: the state is that of the place where it stopped.
  void leave();

 private:
  Tracer& t;
};

// One call of a higher-order operator whose subgraphs are traced once, on placeholder tensors that represent any
// iteration or element.
class PlaceholderCall {
 public:
  PlaceholderCall(Tracer& tracer, const char* what);

 protected:
  [[noreturn]] void refuse(const std::string& why) const { refuse_subgraph(what_, why); }
  // What its functions can reach must be unchanged by them.
  void reach(PyObject* const* arguments, size_t count);
  Subgraph trace(Borrowed function, const Tensors& placeholders, bool may_alias = false);
  static Tensors captured_by(std::initializer_list<const Subgraph*> subgraphs, const Tensors& placeholders);
  static bool holds(const Tensors& tensors, const at::Tensor& wanted);

  Tracer& tracer_;

 private:
  const char* what_;
  Reachable reachable_;
};

}  // namespace alternator::trace
