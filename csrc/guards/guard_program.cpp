#include "guards/guard_program.h"
#include "py/gc.h"

#include <algorithm>
#include <cstdlib>

namespace alternator::guards {

using lift::Found;

bool GuardProgram::fail(Failure::Kind kind, uint32_t index, uint32_t other) {
  failure_ = {kind, index, other};
  return false;
}

// Takes the steps and runs the checks of the nodes [begin, end): one node or several whole subtrees.
bool GuardProgram::walk(const Roots& roots, uint32_t begin, uint32_t end) {
  lift::Memo no_memo;
  for (uint32_t i = begin; i < end; i++) {
    const Node& node = nodes_[i];
    PyObject* parent;
    lift::Memo* memo = &no_memo;
    if (node.parent != kNone) {
      parent = found_[node.parent];
      if (nodes_[node.parent].memo != kNone) memo = &memos_[nodes_[node.parent].memo];
    } else {
      parent = node.step.access == lift::Access::kSlot ? roots.slots[node.step.index] : roots.function;
    }
    PyObject* value = nullptr;
    Found found = Found::kUnknown;
    if (node.step.access == lift::Access::kSlot) {
      value = parent;
      found = value != nullptr ? Found::kYes : Found::kNo;
    } else if (node.has_pinned_key && node.key.get() == nullptr) {
      // The key that it was looked up by has died: unknown.
    } else {
      Ref owner;
      found = lift::take(node.step, parent, &value, &owner, memo);
      if (owner) owned_.push_back(std::move(owner));
    }
    found_[i] = value;
    if (found != Found::kYes) {
      if (found == Found::kUnknown || node.absent == kNone) return fail(Failure::Kind::kMissing, i);
      std::fill(found_.begin() + i, found_.begin() + node.end, nullptr);
      i = node.end - 1;
      continue;
    }
    if (node.absent != kNone) return fail(Failure::Kind::kCheck, node.absent);
    lift::Memo* own_memo = nullptr;
    if (node.memo != kNone) {
      own_memo = &memos_[node.memo];
      *own_memo = {};
    }
    for (uint32_t c = node.first_check; c < node.last_check; c++) {
      if (!checks_[c].holds(value, node.step.access, own_memo)) return fail(Failure::Kind::kCheck, c);
    }
  }
  return true;
}

// The address of an object; a distinct one if the object stands for its instance dict.
static uintptr_t address_of(PyObject* found, lift::Access access) {
  const auto address = reinterpret_cast<uintptr_t>(found);
  return lift::is_stand_in(access, found) ? address | 1 : address;
}

bool GuardProgram::relation_holds(const Relation& relation) const {
  PyObject *left = found_[relation.left], *right = found_[relation.right];
  const bool same =
      left != nullptr && right != nullptr &&
      address_of(left, nodes_[relation.left].step.access) == address_of(right, nodes_[relation.right].step.access);
  return same == relation.same;
}

bool GuardProgram::relations_hold() {
  for (uint32_t i = 0; i < relations_.size(); i++) {
    if (!relation_holds(relations_[i])) return fail(Failure::Kind::kRelation, i);
  }
  return true;
}

bool GuardProgram::identities_hold() {
  addresses_.clear();
  for (uint32_t node : identities_) {
    if (found_[node] != nullptr) addresses_.emplace_back(address_of(found_[node], nodes_[node].step.access), node);
  }
  return are_distinct();
}

// Whether the noted addresses are pairwise distinct.
bool GuardProgram::are_distinct() {
  constexpr size_t kFew = 10;  // quadratic comparison is faster than sorting
  if (addresses_.size() <= kFew) {
    bool distinct = true;
    for (size_t i = 1; i < addresses_.size(); i++) {
      for (size_t j = 0; j < i; j++) distinct &= addresses_[i].first != addresses_[j].first;
    }
    if (distinct) return true;
  }
  std::sort(addresses_.begin(), addresses_.end());
  for (size_t i = 1; i < addresses_.size(); i++) {
    if (addresses_[i - 1].first == addresses_[i].first) {
      return fail(Failure::Kind::kIdentity, addresses_[i - 1].second, addresses_[i].second);
    }
  }
  return true;
}

// Values that were found by walking. The rest of values_ comes from the bindings.
void GuardProgram::note_values() {
  for (const Unit& unit : units_) {
    const bool is_bound = unit.resident != 0;
    for (uint32_t i : is_bound ? unit.bindings.front()->fresh : unit.needed) values_[i] = found_[needed_[i]];
  }
}

// The dict itself is needed. No garbage collection meanwhile: it would run finalizers.
static Ref make_dict(PyObject* stand_in) {
  const WithoutCollector without_collector;
  SavedError saved;
  Ref dict = lift::real_dict(stand_in);
  if (!dict) throw std::bad_alloc();
  return dict;
}

namespace {

// Iterates over borrowed objects and yields references: a vector of these is then filled at once.
struct Sharing {
  using iterator_category = std::forward_iterator_tag;
  using value_type = Ref;
  using difference_type = ptrdiff_t;
  using pointer = void;
  using reference = Ref;

  PyObject* const* at;
  Ref operator*() const { return Ref::share(*at); }
  Sharing& operator++() { return ++at, *this; }
  bool operator==(const Sharing&) const = default;
};

}  // namespace

void GuardProgram::collect(std::vector<Ref>* values) {
  note_values();
  values->assign(Sharing{values_.data()}, Sharing{values_.data() + values_.size()});
  for (const uint32_t i : needed_dicts_) {
    PyObject* found = values_[i];
    if (found != nullptr && lift::is_stand_in(lift::Access::kDict, found)) (*values)[i] = make_dict(found);
  }
  if (sizes_ != nullptr) sizes_->collect(values);
}

void GuardProgram::release_owned() {
  if (!owned_.empty()) {
    std::vector<Ref> dying;
    dying.swap(owned_);
  }
  if (!retired_.empty()) {
    std::vector<std::unique_ptr<Binding>> dying;
    dying.swap(retired_);
  }
}

bool GuardProgram::check_by_walking(const Roots& roots) {
  for (Unit& unit : units_) unit.resident = 0;
  return walk(roots, 0, static_cast<uint32_t>(nodes_.size())) && relations_hold() && identities_hold();
}

static bool uses_bindings = true;
static bool verifies = [] {
  const char* wish = std::getenv("ALTERNATOR_VERIFY_GUARDS");
  return wish != nullptr && *wish != 0 && *wish != '0';
}();

void GuardProgram::set_bindings(bool enabled) { uses_bindings = enabled; }
void GuardProgram::set_verify(bool enabled) { verifies = enabled; }

// Also walks: a binding must come to the same result.
void GuardProgram::verify(const Roots& roots, bool holds) {
  std::vector<PyObject*> values;
  values.reserve(needed_.size());
  for (const uint32_t node : needed_) values.push_back(found_[node]);
  const bool walked = check_by_walking(roots);
  const std::string why = walked ? "" : explain_failure(&roots).text();
  ALT_CHECK(walked == holds, "a binding says " + std::string(holds ? "yes" : "no") + ", a walk does not: " + why);
  for (size_t i = 0; i < needed_.size() && holds; i++) {
    // Objects that are created on access (a gradient's wrapper, an int) may differ each time.
    const bool same = found_[needed_[i]] == values[i] || !owned_.empty();
    ALT_CHECK(same, "a binding finds another object at " + nodes_[needed_[i]].source->text());
  }
}

bool GuardProgram::check(const Roots& roots, std::vector<Ref>* values) {
  ALT_CHECK(values->empty(), "the values of an earlier check");
  failure_ = {};
  if (!ambient_.matches()) return fail(Failure::Kind::kAmbient, 0);
  const bool holds = uses_bindings ? check_by_units(roots) : check_by_walking(roots);
  if (verifies && uses_bindings) [[unlikely]]
    verify(roots, holds);
  const bool fits = holds && (sizes_ == nullptr || sizes_->check(found_.data()) || fail(Failure::Kind::kSize, 0));
  if (fits) collect(values);
  release_owned();
  return fits;
}

}  // namespace alternator::guards
