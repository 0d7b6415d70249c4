// What torch tells the program about sizes: numbers over backed symbols in place of the sizes of the fakes.
#pragma once

#include "graph/sizes/size_solver.h"

namespace alternator::graph {

class SizeReader {
 public:
  // What a result tells (size_readers.def).
  enum class Reads : uint8_t;
  explicit SizeReader(SizeSolver& solver) : solver_(solver) {}

  // After a call whose arguments vary (Recorder::on_varying): its result as the program is to see it. What the result
  // tells of sizes, and has no row in size_readers.def, is specialized on.
  Ref read(const Node& node, Ref result, uint32_t made);
  // At the end of a trace that mutates tensors: whether each of these calls returns a view or a copy is part of it.
  void fix_views();
  // Before an identity test: the tensor is the result of such a call that has copied, and might have returned its
  // argument.
  void fix_copy(const at::Tensor& tensor);

 private:
  void specialize_weights(const Node& node);
  Ref read_first(Reads reads, const Node& node, Borrowed result);
  Ref read_contiguous(const Node& node, Borrowed result);
  Ref read_layout(Reads reads, const Node& node, Borrowed result);
  Ref part(const Sizes& sizes, const Node& node, Borrowed result);
  bool tells_nothing(const Node& node, Borrowed result, uint32_t made) const;
  bool compare_sizes(const Node& node);
  Ref number(shapes::Expression expression, Borrowed result);
  Ref tuple(const Sizes& sizes, Borrowed result, PyTypeObject* type);
  bool holds_only_made(Borrowed result, uint32_t made, int depth = 2) const;
  bool is_made(Borrowed object, uint32_t made) const;

  SizeSolver& solver_;
  struct ViewOrCopy {
    uint32_t tensor;  // the first argument
    at::Tensor result;
    bool is_contiguous;    // x.contiguous(), which has copied
    bool may_be_argument;  // it has copied, and returns the argument itself where that has the right layout
  };
  bool guard_view(const ViewOrCopy& call);
  std::vector<ViewOrCopy> views_or_copies_;
};

}  // namespace alternator::graph
