// Builds the arrays of a program from a tree of sources.
#include "guards/guard_kinds.h"
#include "guards/guard_mutants.h"
#include "guards/guard_program.h"

#include <algorithm>
#include <numeric>

namespace alternator::guards {

using lift::Access;
using lift::Guard;
using lift::GuardKind;
using lift::Source;

namespace {

bool reads_part(Access access) {
  return access == Access::kItem || access == Access::kKey || access == Access::kValue || access == Access::kElement;
}

// Union-find: sources in one group find the same object.
class Groups {
 public:
  explicit Groups(size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0); }
  uint32_t of(uint32_t member) {
    while (parent_[member] != member) member = parent_[member] = parent_[parent_[member]];
    return member;
  }
  void join(uint32_t a, uint32_t b) { parent_[std::max(of(a), of(b))] = std::min(of(a), of(b)); }

 private:
  std::vector<uint32_t> parent_;
};

// The sources that something depends on, each after its parent.
std::vector<bool> live_sources(const lift::SourceTree& tree, const std::vector<Source*>& needed) {
  const auto& sources = tree.sources();
  std::vector<bool> live(sources.size());
  for (const Source& source : sources) {
    if (!source.guards.empty() || source.bears_identity) live[source.id] = true;
    for (const Guard& guard : source.guards) {
      if (guard.other != nullptr) live[guard.other->id] = true;
    }
  }
  for (const Source* source : needed) live[source->id] = true;
  // A child is made after its parent.
  for (size_t i = sources.size(); i-- > 0;) {
    if (live[i] && sources[i].parent != nullptr) live[sources[i].parent->id] = true;
  }
  return live;
}

// The number of live sources in each subtree, root included.
std::vector<size_t> live_weights(const lift::SourceTree& tree, const std::vector<bool>& live) {
  const auto& sources = tree.sources();
  std::vector<size_t> weights(sources.size());
  for (size_t i = sources.size(); i-- > 0;) {
    if (!live[i]) continue;
    weights[i]++;
    if (sources[i].parent != nullptr) weights[sources[i].parent->id] += weights[i];
  }
  return weights;
}

std::unique_ptr<SpecialMethods> special_methods(Borrowed dict) {
  auto methods = std::make_unique<SpecialMethods>();
  Py_ssize_t position = 0;
  PyObject *name, *attribute;
  while (PyDict_Next(dict.get(), &position, &name, &attribute)) {
    methods->attributes.emplace_back(Ref::share(name), Pin(attribute));
  }
  return methods;
}

void keep_object(Check& check, const Guard& guard) {
  check.object = guard.object.get();
  check.first = Pin(guard.object);
  if (check.first.is_weak()) check.label = lift::show(guard.object.get());
  if (guard.second) check.second = Pin(guard.second);
}

void keep_keys(Check& check, Borrowed keys) {
  check.label = lift::show(keys.get(), 200);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys.get()); i++) {
    check.keys.emplace_back(PyTuple_GET_ITEM(keys.get(), i));
  }
}

Check make_check(Guard guard, uint32_t node) {
  Check check;
  check.kind = guard.kind;
  check.node = node;
  check.number = guard.number;
  check.site = guard.site;
  check.tensor = std::move(guard.tensor);
  auto require = [&](bool is_filled, const char* what) {
    ALT_CHECK(is_filled, std::string(name_of(guard.kind)) + " wants " + what);
  };
  switch (facts_of(guard.kind).keeps) {
    case Keeps::kObject:
    case Keeps::kKey:
      require(static_cast<bool>(guard.object), "an object");
      keep_object(check, guard);
      break;
    case Keeps::kKeys:
      require(guard.object && PyTuple_Check(guard.object.get()), "a tuple");
      keep_keys(check, guard.object);
      break;
    case Keeps::kMethods:
      require(guard.object && PyDict_Check(guard.object.get()), "a dict");
      check.methods = special_methods(guard.object);
      break;
    case Keeps::kTensor:
      require(check.tensor != nullptr, "a TensorSpec");
      break;
    case Keeps::kNumber:
    case Keeps::kNothing:
    case Keeps::kSource:
      break;
  }
  return check;
}

// The nodes of a program, in the order in which they are walked.
class Layout {
 public:
  Layout(lift::SourceTree& tree, const std::vector<bool>& live, std::vector<Node>& nodes, std::vector<Unit>& units)
      : tree_(tree), live_(live), nodes_(nodes), units_(units), node_of_(live.size(), kNone) {}

  // By source.
  const std::vector<uint32_t>& node_of() const { return node_of_; }
  uint32_t memos() const { return memos_; }

  void run() {
    std::vector<std::vector<Source*>> units;
    std::vector<Source*> constants;
    for (Source* root : tree_.roots()) {
      if (!live_[root->id]) continue;
      if (root->access == Access::kConstant) {
        constants.push_back(root);
      } else {
        units.push_back({root});
      }
    }
    if (!constants.empty()) units.push_back(std::move(constants));
    // Small ones first: what differs from call to call is most often an argument.
    const std::vector<size_t> weights = live_weights(tree_, live_);
    auto weight_of = [&](const std::vector<Source*>& roots) {
      size_t sum = 0;
      for (const Source* root : roots) sum += weights[root->id];
      return sum;
    };
    std::stable_sort(units.begin(), units.end(),
                     [&](const auto& a, const auto& b) { return weight_of(a) < weight_of(b); });
    for (const auto& roots : units) add_unit(roots);
  }

 private:
  void add_unit(const std::vector<Source*>& roots) {
    Unit unit;
    unit.begin = static_cast<uint32_t>(nodes_.size());
    for (Source* root : roots) add(root);
    unit.end = static_cast<uint32_t>(nodes_.size());
    unit.has_key = roots.front()->access != Access::kConstant;
    units_.push_back(std::move(unit));
  }

  // Depth first; the end of a subtree is known when the walk returns from it.
  void add(Source* root) {
    struct Open {
      Source* source;
      size_t next_child;
    };
    std::vector<Open> open;
    auto enter = [&](Source* source) {
      add_node(source);
      open.push_back({source, 0});
    };
    enter(root);
    while (!open.empty()) {
      Open& top = open.back();
      if (top.next_child == top.source->children.size()) {
        nodes_[node_of_[top.source->id]].end = static_cast<uint32_t>(nodes_.size());
        open.pop_back();
        continue;
      }
      Source* child = top.source->children[top.next_child++];
      if (live_[child->id]) enter(child);
    }
  }

  void add_node(Source* source) {
    node_of_[source->id] = static_cast<uint32_t>(nodes_.size());
    Node& node = nodes_.emplace_back();
    node.step = lift::step_of(*source);
    node.source = source;
    if (source->parent != nullptr) node.parent = node_of_[source->parent->id];
    if (source->key) {
      node.key = Pin(source->key);
      node.has_pinned_key = node.key.is_weak();
    }
    bool needs_memo = false;
    for (const Source* child : source->children) needs_memo |= live_[child->id] && reads_part(child->access);
    for (const Guard& guard : source->guards) needs_memo |= facts_of(guard.kind).keeps == Keeps::kKey;
    if (needs_memo) node.memo = memos_++;
  }

  lift::SourceTree& tree_;
  const std::vector<bool>& live_;
  std::vector<Node>& nodes_;
  std::vector<Unit>& units_;
  std::vector<uint32_t> node_of_;
  uint32_t memos_ = 0;
};

}  // namespace

GuardProgram::GuardProgram(std::unique_ptr<lift::SourceTree> tree, const std::vector<Source*>& needed,
                           AmbientGuard ambient, std::shared_ptr<fake::BackedSymbols> symbols)
    : tree_(std::move(tree)), ambient_(std::move(ambient)) {
  SavedError saved;
  build(needed, std::move(symbols));
}

GuardProgram::~GuardProgram() = default;

void GuardProgram::build(const std::vector<Source*>& needed, std::shared_ptr<fake::BackedSymbols> symbols) {
  if constexpr (kHasMutants) {
    checks_identity_ = !is_disabled("identity");
    for (const Source& source : tree_->sources()) {
      std::erase_if(tree_->at(source.id)->guards, [](const Guard& guard) { return is_disabled(name_of(guard.kind)); });
    }
  }
  const std::vector<bool> live = live_sources(*tree_, needed);
  Layout layout(*tree_, live, nodes_, units_);
  layout.run();
  while (small_units_ < units_.size() && is_small(units_[small_units_])) small_units_++;
  build_checks(layout.node_of());
  build_needed(needed, layout.node_of());
  if (symbols != nullptr) sizes_ = std::make_unique<SizeProgram>(std::move(symbols), layout.node_of(), *tree_);

  found_.resize(nodes_.size());
  values_.resize(needed_.size());
  changes_.resize(nodes_.size());
  ids_.resize(units_.size());
  memos_.resize(layout.memos());
  addresses_.reserve(identities_.size());
  tree_->close(&Pin::holds);
}

// Moves the guards of the sources into checks, relations and identities.
void GuardProgram::build_checks(const std::vector<uint32_t>& node_of) {
  Groups groups(nodes_.size());
  for (uint32_t number = 0; number < nodes_.size(); number++) {
    Node& node = nodes_[number];
    Source* source = tree_->at(node.source->id);
    node.first_check = static_cast<uint32_t>(checks_.size());
    for (Guard& guard : source->guards) {
      if (facts_of(guard.kind).is_relation()) {
        ALT_CHECK(guard.other != nullptr, "a relation wants another source");
        const bool same = guard.kind == GuardKind::kSame;
        relations_.push_back({same, number, node_of[guard.other->id], guard.site});
        if (same) groups.join(number, node_of[guard.other->id]);
        continue;
      }
      if (guard.kind == GuardKind::kAbsent) node.absent = static_cast<uint32_t>(checks_.size());
      checks_.push_back(make_check(std::move(guard), number));
    }
    node.last_check = static_cast<uint32_t>(checks_.size());
    source->guards.clear();
    source->guards.shrink_to_fit();
  }

  std::vector<bool> has_identity(nodes_.size());
  for (uint32_t number = 0; number < nodes_.size(); number++) {
    if (nodes_[number].source->bears_identity) has_identity[groups.of(number)] = true;
  }
  for (uint32_t number = 0; number < nodes_.size(); number++) {
    if (has_identity[number] && checks_identity_) identities_.push_back(number);
  }
}

void GuardProgram::build_needed(const std::vector<Source*>& needed, const std::vector<uint32_t>& node_of) {
  for (const Source* source : needed) {
    const uint32_t number = node_of[source->id];
    const auto unit =
        std::partition_point(units_.begin(), units_.end(), [&](const Unit& unit) { return unit.end <= number; });
    unit->needed.push_back(static_cast<uint32_t>(needed_.size()));
    if (source->access == Access::kDict) needed_dicts_.push_back(static_cast<uint32_t>(needed_.size()));
    needed_.push_back(number);
  }
}

}  // namespace alternator::guards
