// Which variables make an entry's guards fail: counters, names that a loop iterates over, queues.
#include "guards/guard_kinds.h"
#include "guards/guard_program.h"
#include "lift/sources/changing_values.h"

#include <algorithm>

namespace alternator::guards {

using lift::Found;
using lift::GuardKind;

static bool is_about_contents(GuardKind kind) {
  const GuardFacts& facts = facts_of(kind);
  return facts.proof == Proof::kValue || facts.is_about_contents() || kind == GuardKind::kYields ||
         kind == GuardKind::kEnds;
}

// Another value of the same type, or an int where a float was, or the other way round.
static bool is_other_value(const Check& check, Borrowed found) {
  if (check.kind == GuardKind::kEquals && Py_IS_TYPE(found.get(), Py_TYPE(check.object))) return true;
  if (!lift::is_counting(found)) return false;
  if (check.kind == GuardKind::kEquals) return lift::is_counting(check.object);
  return check.kind == GuardKind::kType && (check.object == reinterpret_cast<PyObject*>(&PyLong_Type) ||
                                            check.object == reinterpret_cast<PyObject*>(&PyFloat_Type));
}

// Continues after a guard that fails, as long as it is on the value of a variable, or on the contents of a container in
// one. In `table[i] = x`, the table differs because `i` does: if a scalar or a string differs, containers are not
// reported.
std::vector<Change> GuardProgram::changed(const Roots& roots) {
  if (!ambient_.matches()) return {};
  std::vector<Change> plain, elements, containers;
  auto note_container = [&](uint32_t node) {
    if (node == kNone || found_[node] == nullptr || !lift::is_filled(found_[node])) return false;
    const lift::Source* source = nodes_[node].source;
    if (source->is_variable()) containers.push_back({Change::Kind::kContainer, source->text()});
    return source->is_variable();
  };
  auto note_check = [&](const Check& check, PyObject* found) {
    const Node& node = nodes_[check.node];
    const bool is_element = node.parent != kNone && found_[node.parent] != nullptr &&
                            node.step.access == lift::Access::kIndex && !PyTuple_CheckExact(found_[node.parent]);
    const bool is_variable = !is_element && node.source->is_variable();
    const bool has_type = is_other_value(check, found);
    if (has_type && is_variable && (lift::is_counting(found) || PyUnicode_CheckExact(found))) {
      const Change::Kind kind = PyUnicode_CheckExact(found) ? Change::Kind::kText : Change::Kind::kNumber;
      plain.push_back({kind, node.source->text()});
      return true;
    }
    if (has_type && !is_variable && lift::is_counting(found) && node.source->holds_values()) {
      elements.push_back({Change::Kind::kNumber, node.source->text(), 0, true});
      (void)(note_container(check.node) || note_container(node.parent));
      return true;
    }
    if (check.kind == GuardKind::kTensor) {
      const lift::TensorSpec::Difference different = check.tensor->difference(found);
      const bool any = different.sizes != 0 || different.layout != 0;
      if (any) plain.push_back({Change::Kind::kSize, node.source->text(), different.sizes, false, different.layout});
      return any;
    }
    return is_about_contents(check.kind) && (note_container(check.node) || note_container(node.parent));
  };
  lift::Memo no_memo;
  bool goes_on = true, all_hold = true;
  for (uint32_t i = 0; goes_on && i < nodes_.size(); i++) {
    const Node& node = nodes_[i];
    const bool is_slot = node.step.access == lift::Access::kSlot;
    PyObject* value = is_slot ? roots.slots[node.step.index] : nullptr;
    Found found = value != nullptr ? Found::kYes : Found::kNo;
    if (!is_slot) {
      lift::Memo* memo = &no_memo;
      if (node.parent != kNone && nodes_[node.parent].memo != kNone) memo = &memos_[nodes_[node.parent].memo];
      if (node.has_pinned_key && node.key.get() == nullptr) break;
      Ref owner;
      found = lift::take(node.step, node.parent != kNone ? found_[node.parent] : roots.function, &value, &owner, memo);
      if (owner) owned_.push_back(std::move(owner));
    }
    found_[i] = value;
    const bool is_absent = node.absent != kNone;
    bool holds = (found == Found::kYes) != is_absent;
    if (!holds) {
      goes_on = found != Found::kUnknown && note_container(node.parent);
    } else if (found == Found::kYes) {
      lift::Memo* own_memo = node.memo != kNone ? &memos_[node.memo] : nullptr;
      if (own_memo != nullptr) *own_memo = {};
      for (uint32_t c = node.first_check; holds && c < node.last_check; c++) {
        holds = checks_[c].holds(value, node.step.access, own_memo);
        if (!holds) goes_on = note_check(checks_[c], value);
      }
    }
    all_hold = all_hold && holds;
    if (!holds || found != Found::kYes) i = node.end - 1;  // the subtree cannot be found
  }
  if (all_hold && sizes_ != nullptr) {
    const size_t before = plain.size();
    sizes_->each_out_of_range(found_.data(), [&](const lift::Source& source, uint16_t dimension) {
      plain.push_back({Change::Kind::kSize, source.text(), uint64_t{1} << dimension});
    });
    // Sizes that were taken to be equal, for example.
    if (goes_on && plain.size() == before && !sizes_->check(found_.data())) {
      for (auto& [source, dimension] : sizes_->failed_sizes())
        plain.push_back({Change::Kind::kSize, std::move(source), uint64_t{1} << dimension});
    }
  }
  release_owned();
  if (plain.empty()) plain = std::move(containers);
  plain.insert(plain.begin(), elements.begin(), elements.end());
  return plain;
}

}  // namespace alternator::guards
