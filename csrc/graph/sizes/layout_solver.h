// The strides and storage offsets of a recording's tensors as expressions, and what follows from them: whether a tensor
// is contiguous, whether a reshape is a view.
//
// Computed when something reads them, as sizes are (size_solver.h): views are walked back to their base, and what is
// new is known only if it is contiguous. Nothing where it is not known: then the caller specializes.
#pragma once

#include "graph/sizes/size_solver.h"

#include <c10/core/MemoryFormat.h>

#include <unordered_map>

namespace alternator::graph {

struct Layout {
  Sizes strides;
  shapes::Expression offset = nullptr;  // null: not known
};

bool share_memory(const at::Tensor& one, const at::Tensor& other);

class LayoutSolver {
 public:
  explicit LayoutSolver(SizeSolver& sizes) : sizes_(sizes) {}

  // With the hints that the fake has.
  std::optional<Sizes> strides_of(uint32_t tensor);
  shapes::Expression offset_of(uint32_t tensor);  // null: not known

  // These decide conditions, which are guarded.
  std::optional<bool> is_contiguous(uint32_t tensor, at::MemoryFormat format);
  // torch.Tensor.dim_order()
  std::optional<std::vector<int64_t>> dim_order(uint32_t tensor);
  // The strides that a view of these sizes has; none: there is no such view. Throws NoRule where that is not known.
  std::optional<Sizes> view_strides(uint32_t tensor, const Sizes& sizes);

  // Calls visit(tensor, its layout) for all that were computed.
  template <class Visit>
  void each_known(Visit&& visit) const {
    for (const auto& [tensor, layout] : known_)
      if (layout) visit(tensor, *layout);
  }

 private:
  const std::optional<Layout>& layout_of(uint32_t tensor);
  std::optional<Layout> solve(uint32_t tensor);
  std::optional<Layout> solve_view(const Node& node, uint32_t tensor, uint32_t base);
  Sizes dense_strides(const Sizes& sizes, const std::vector<size_t>& innermost_first);
  std::optional<Layout> contiguous(uint32_t tensor);
  std::optional<Layout> in_order_of_hint(uint32_t tensor);
  bool is_copy(uint32_t tensor, uint32_t reshaped);
  bool is_contiguous(const Sizes& sizes, const Sizes& strides, const std::vector<size_t>& innermost_first);
  bool decide(shapes::Expression condition);
  bool is(shapes::Expression expression, int64_t value);
  shapes::ShapeEnvironment& environment() { return sizes_.environment(); }

  SizeSolver& sizes_;
  std::unordered_map<uint32_t, std::optional<Layout>> known_;
  int depth_ = 0;
};

}  // namespace alternator::graph
