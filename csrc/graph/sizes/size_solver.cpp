#include "graph/sizes/layout_solver.h"
#include "graph/sizes/size_rules.h"
#include "graph/sizes/size_switches.h"

#include <algorithm>

namespace alternator::graph {

namespace {

constexpr int kDeepest = 1500;

class Deeper {
 public:
  explicit Deeper(int& depth) : depth_(depth) { depth_++; }
  ~Deeper() { depth_--; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  int& depth_;
};

}  // namespace

SizeSolver::SizeSolver(Program& program, fake::BackedSymbols& symbols)
    : program_(program), symbols_(symbols), layouts_(std::make_unique<LayoutSolver>(*this)) {}
SizeSolver::~SizeSolver() = default;

bool SizeSolver::has_plain_sizes(const at::Tensor& fake) {
  return fake.layout() == at::kStrided && !fake.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

Sizes SizeSolver::constants_of(uint32_t tensor) {
  Sizes sizes;
  for (const int64_t size : program_.tensors[tensor].fake.sizes()) sizes.push_back(environment().integer(size));
  return sizes;
}

// Torch has changed the sizes of the tensor since it was made (x.t_(), x.resize_()), or a rule is wrong.
bool SizeSolver::is_as_hinted(uint32_t tensor, const Sizes& sizes) const {
  const c10::IntArrayRef now = program_.tensors[tensor].fake.sizes();
  if (sizes.size() != now.size()) return false;
  for (size_t d = 0; d < sizes.size(); d++) {
    if (sizes[d] == nullptr || !sizes[d]->has_hint || sizes[d]->hint.integer != now[d]) return false;
  }
  return true;
}

std::optional<Sizes> SizeSolver::solve(uint32_t tensor) {
  const TensorRecord& record = program_.tensors[tensor];
  if (record.origin == Origin::Input) {
    const std::vector<shapes::Expression>& given = program_.declared[record.index].geometry.sizes;
    if (given.empty()) return constants_of(tensor);
    Sizes sizes;
    for (const shapes::Expression size : given) sizes.push_back(size);
    return sizes;
  }
  const uint32_t producer = program_.producer(tensor);
  if (producer == kNowhere || depth_ >= kDeepest) return std::nullopt;
  const Deeper scope(depth_);
  return solve_by_rule(*this, program_.nodes[producer], tensor);
}

Sizes SizeSolver::sizes_of(uint32_t tensor) {
  if (!program_.tensors[tensor].varies) return constants_of(tensor);
  if (known_.size() < program_.tensors.size()) known_.resize(program_.tensors.size());
  if (!known_[tensor]) {
    std::optional<Sizes> solved = solve(tensor);
    if (known_.size() < program_.tensors.size()) known_.resize(program_.tensors.size());
    known_[tensor] = std::move(solved);
  }
  if (known_[tensor] && (tensor == restriding_ || is_as_hinted(tensor, *known_[tensor]))) {
    Sizes sizes;
    for (const shapes::Expression size : *known_[tensor]) sizes.push_back(environment().simplify(size));
    return sizes;
  }
  if (!is_open("no_rule")) specialize(tensor);
  return constants_of(tensor);
}

bool SizeSolver::know(uint32_t tensor, const Sizes& sizes) {
  if (!is_as_hinted(tensor, sizes)) return false;
  if (known_.size() < program_.tensors.size()) known_.resize(program_.tensors.size());
  known_[tensor] = sizes;
  return true;
}

shapes::Expression SizeSolver::number_of(Value value) {
  if (value.is_tensor()) return program_.tensors[value.index].expression;
  if (value.kind() != ValueKind::Object) return nullptr;
  PyObject* object = program_.arena.object(value).get();
  if (!PyLong_Check(object)) return nullptr;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow == 0 ? environment().integer(number) : nullptr;
}

void SizeSolver::specialize(uint32_t tensor) {
  std::vector<uint32_t> open{tensor};
  std::vector<bool> seen(program_.tensors.size());
  while (!open.empty()) {
    const uint32_t id = open.back();
    open.pop_back();
    if (seen[id]) continue;
    seen[id] = true;
    const TensorRecord& record = program_.tensors[id];
    if (record.expression != nullptr) symbols_.specialize(record.expression);
    if (!record.varies) continue;
    if (record.origin == Origin::Input) {
      const fake::SymbolicGeometry& geometry = program_.declared[record.index].geometry;
      for (const shapes::Expression size : geometry.sizes) symbols_.specialize(size);
      for (const shapes::Expression stride : geometry.strides) symbols_.specialize(stride);
      if (geometry.offset != nullptr) symbols_.specialize(geometry.offset);
    } else if (const uint32_t producer = program_.producer(id); producer != kNowhere) {
      program_.each_tensor_argument(program_.nodes[producer], [&](uint32_t argument) { open.push_back(argument); });
    }
  }
}

bool SizeSolver::is_restrided(uint32_t tensor) const {
  return std::ranges::find(restrided_, tensor) != restrided_.end();
}

bool SizeSolver::note_restrided(const Node& changing) {
  const Value first = changing.argument_count() > 0 ? program_.argument(changing, 0) : Value{};
  if (!first.is_tensor() || !program_.tensors[first.index].varies) return false;
  const uint32_t tensor = first.index;
  known_.resize(program_.tensors.size());
  if (!known_[tensor]) known_[tensor] = solve(tensor);
  if (!known_[tensor]) return false;
  restriding_ = tensor;
  // What was computed from it has the sizes that follow from those before.
  for (const Node& node : program_.nodes) {
    bool takes = false;
    program_.each_tensor_argument(node, [&](uint32_t argument) { takes = takes || argument == tensor; });
    if (!takes) continue;
    if (node.result != kNowhere && program_.tensors[node.result].fake.defined()) (void)sizes_of(node.result);
    for (uint32_t i = 0; i < node.element_count; i++) {
      const uint32_t part = program_.elements[node.elements + i].tensor;
      if (part != kNowhere && program_.tensors[part].fake.defined()) (void)sizes_of(part);
    }
  }
  std::optional<Sizes> after = sizes_after(*this, changing);
  restriding_ = kNowhere;
  restrided_.push_back(tensor);
  if (!after || !is_as_hinted(tensor, *after)) return false;
  known_[tensor] = std::move(after);
  return true;
}

void SizeSolver::specialize_arguments(const Node& node) {
  program_.each_tensor_argument(node, [&](uint32_t argument) { specialize(argument); });
}

}  // namespace alternator::graph
