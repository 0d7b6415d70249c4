#include "graph/sizes/size_rules.h"

namespace alternator::graph {

std::optional<Sizes> solve_by_rule(SizeSolver&, const Node&, uint32_t) { return std::nullopt; }

}  // namespace alternator::graph
