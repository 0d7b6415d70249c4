// Running bindings, and making new ones where they pay off.
#include "guards/binding.h"

#include "cpython/dict_words.h"
#include "cpython/objects.h"
#include "guards/guard_program.h"
#include "py/gc.h"

#include <algorithm>
#include <cstring>

namespace alternator::guards {

using lift::Access;

namespace {

uintptr_t address_of(PyObject* found, Access access) {
  const auto address = reinterpret_cast<uintptr_t>(found);
  return lift::is_stand_in(access, found) ? address | 1 : address;
}

bool has(const std::vector<uintptr_t>& sorted, uintptr_t address) {
  if (sorted.size() <= 4) return std::find(sorted.begin(), sorted.end(), address) != sorted.end();
  return std::binary_search(sorted.begin(), sorted.end(), address);
}

}  // namespace

// Whether what the operation proves still holds. All operations before it hold: the memory that it reads is alive.
inline bool GuardProgram::is_proved(const Op& op) {
  auto* object = static_cast<PyObject*>(op.object);
  auto is_wanted = [&](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) == op.want; };
  switch (op.kind) {
    case OpKind::kTypeVersion:
      return cpython::type_version(reinterpret_cast<PyTypeObject*>(object)) == op.want;
    case OpKind::kListItem: {
      const Py_ssize_t index = nodes_[op.node].step.index;
      return index < PyList_GET_SIZE(object) && is_wanted(PyList_GET_ITEM(object, index));
    }
    case OpKind::kTupleItem: {
      const Py_ssize_t index = nodes_[op.node].step.index;
      return index < PyTuple_GET_SIZE(object) && is_wanted(PyTuple_GET_ITEM(object, index));
    }
    case OpKind::kDictItem: {
      const Node& node = nodes_[op.node];
      if (node.has_pinned_key && node.key.get() == nullptr) return false;
      PyObject* value;
      lift::find_item(object, node.step.key, &value, &memos_[nodes_[node.parent].memo].keys);
      return is_wanted(value);
    }
    case OpKind::kVisit:
      memos_[nodes_[op.node].memo] = {};
      return true;
    case OpKind::kWords:
    case OpKind::kCheck:
    case OpKind::kWalk:
      break;
  }
  return true;
}

// A word is read only if all before it are unchanged: they prove that its memory is still valid.
static inline bool are_unchanged(const Word* word, const Word* end) {
#pragma GCC unroll 4
  for (; word != end; word++) {
    uintptr_t now;
    std::memcpy(&now, word->address, sizeof(now));
    if (now != word->want) return false;
  }
  return true;
}

// The binding's objects are in found_ already.
void GuardProgram::settle(Unit& unit, const Binding& binding) {
  for (size_t i = 0; i < unit.needed.size(); i++) values_[unit.needed[i]] = binding.values[i];
  unit.resident = binding.id;
}

GuardProgram::Verdict GuardProgram::run(const Roots& roots, Unit& unit, Binding& binding) {
  if (unit.resident != binding.id) {
    std::copy(binding.found.begin(), binding.found.end(), found_.begin() + unit.begin);
    settle(unit, binding);
  }
  for (const Op& op : binding.ops) {
    switch (op.kind) {
      case OpKind::kWords:
        if (!are_unchanged(binding.words.data() + op.node, binding.words.data() + op.want)) return Verdict::kStale;
        break;
      case OpKind::kCheck: {
        const Node& node = nodes_[op.node];
        lift::Memo* memo = node.memo != kNone ? &memos_[node.memo] : nullptr;
        if (checks_[op.want].holds(static_cast<PyObject*>(op.object), node.step.access, memo)) break;
        fail(Failure::Kind::kCheck, static_cast<uint32_t>(op.want));
        return Verdict::kFails;
      }
      case OpKind::kWalk:
        if (!walk(roots, op.node, nodes_[op.node].end)) return Verdict::kFails;
        break;
      default:
        if (!is_proved(op)) return Verdict::kStale;
    }
  }
  Py_ssize_t items = 0;
#pragma GCC unroll 4
  for (const Py_ssize_t* count : binding.empty) items |= *count;
  if (items != 0) return Verdict::kStale;
  TensorWatches& tensors = binding.tensors;
  for (size_t i = tensors.next_changed(0); i < tensors.size(); i = tensors.next_changed(i + 1)) {
    const uint32_t check = tensors.check(i);
    counts_.asked++;
    if (!checks_[check].tensor->matches(tensors.object(i))) {
      fail(Failure::Kind::kCheck, check);
      return Verdict::kFails;
    }
    tensors.renew(i, *checks_[check].tensor);
  }
  return Verdict::kHolds;
}

// Counts the dicts that have changed since the binding was made, although all guards hold: found_ is of a walk just
// now.
void GuardProgram::note_changes(const Binding& binding) {
  for (size_t i = 0; i < binding.words.size(); i++) {
    const auto [node, kind] = binding.notes[i];
    if (kind != WordKind::kDictVersion || found_[node] == nullptr || !PyDict_Check(found_[node])) continue;
    if (*cpython::dict_version_word(found_[node]) != binding.words[i].want && changes_[node] < UINT8_MAX)
      changes_[node]++;
  }
}

// Whether a dict that used to change has become stable: then the binding can be made shorter. Checked less and less
// often; a dict is stable if it did not change from one review to the next.
bool GuardProgram::has_settled(Binding& binding) {
  if (binding.hits < binding.review_at) return false;
  binding.review_at *= 2;
  bool settled = false;
  for (auto& [node, version] : binding.watched) {
    const uint64_t now = cpython::dict_version(found_[node]);
    if (now == version) {
      changes_[node] = 0;
      settled = true;
    }
    version = now;
  }
  return settled;
}

// Called for a binding that is removed. One that never held was useless: wait longer before the next one.
void GuardProgram::note_use(Unit& unit, const Binding& binding) {
  if (binding.hits > 0) {
    unit.failures = 0;
    return;
  }
  unit.failures = std::min<uint32_t>(unit.failures + 1, 10);
  if (unit.failures > 3) unit.pause = 1u << unit.failures;
}

void GuardProgram::retire(Unit& unit, size_t position) {
  if (unit.resident == unit.bindings[position]->id) unit.resident = 0;
  note_use(unit, *unit.bindings[position]);
  retired_.push_back(std::move(unit.bindings[position]));
  unit.bindings.erase(unit.bindings.begin() + static_cast<ptrdiff_t>(position));
  counts_.bindings_stale++;
}

bool GuardProgram::deserves_binding(Unit& unit, PyObject* key) const {
  if (is_small(unit)) return false;
  if (unit.pause > 0) {
    unit.pause--;
    return false;
  }
  if (unit.has_key) {
    if (key == nullptr || lift::is_tensor(key) || lift::is_plain(key)) return false;
    const bool contains = PyDict_CheckExact(key) || PyList_CheckExact(key);
    if (contains ? unit.end - unit.begin < 8 : !PyType_SUPPORTS_WEAKREFS(Py_TYPE(key))) return false;
  }
  const void* sighting = unit.has_key ? key : static_cast<const void*>(&unit);
  if (std::find(unit.seen.begin(), unit.seen.end(), sighting) != unit.seen.end()) return true;
  // The blocks of a model use the program in turns.
  if (unit.seen.size() < kMaxBindings) {
    unit.seen.push_back(sighting);
  } else {
    unit.seen[unit.next_seen++ % kMaxBindings] = sighting;
  }
  return false;
}

void GuardProgram::add_binding(Unit& unit, PyObject* key) {
  const WithoutCollector without_collector;  // it would run finalizers
  SavedError saved;
  std::erase_if(unit.bindings, [&](std::unique_ptr<Binding>& binding) {
    if (!binding->is_dead()) return false;
    note_use(unit, *binding);
    retired_.push_back(std::move(binding));
    return true;
  });
  if (unit.bindings.size() >= kMaxBindings) {
    retired_.push_back(std::move(unit.bindings.back()));
    unit.bindings.pop_back();
  }
  unit.bindings.insert(unit.bindings.begin(), bind(unit, key));
  settle(unit, *unit.bindings.front());
  counts_.bindings_made++;
}

bool GuardProgram::check_unit(size_t number, const Roots& roots) {
  Unit& unit = units_[number];
  PyObject* key = nullptr;
  if (unit.has_key) {
    const lift::Step& step = nodes_[unit.begin].step;
    key = step.access == Access::kSlot ? roots.slots[step.index] : roots.function;
  }
  const Binding* stale = nullptr;
  for (size_t i = 0; i < unit.bindings.size(); i++) {
    Binding& binding = *unit.bindings[i];
    if (!binding.is_for(key)) continue;
    const Verdict verdict = run(roots, unit, binding);
    if (verdict == Verdict::kFails) return false;
    if (verdict == Verdict::kStale) {
      retire(unit, i);
      stale = retired_.back().get();
      break;
    }
    binding.hits++;
    counts_.bound++;
    if (has_settled(binding)) [[unlikely]] {
      retire(unit, i);
      add_binding(unit, key);
      ids_[number] = unit.bindings.front()->id;
      return true;
    }
    ids_[number] = binding.id;
    if (i > 0)
      std::rotate(unit.bindings.begin(), unit.bindings.begin() + static_cast<ptrdiff_t>(i),
                  unit.bindings.begin() + static_cast<ptrdiff_t>(i) + 1);
    return true;
  }
  unit.resident = 0;
  ids_[number] = 0;
  counts_.walked++;
  if (!walk(roots, unit.begin, unit.end)) return false;
  if (stale != nullptr) note_changes(*stale);
  if (deserves_binding(unit, key)) {
    add_binding(unit, key);
    ids_[number] = unit.bindings.front()->id;
  }
  return true;
}

bool GuardProgram::check_by_units(const Roots& roots) {
  // Adjacent ones are one walk.
  if (small_units_ > 0) {
    counts_.walked += small_units_;
    if (!walk(roots, 0, units_[small_units_ - 1].end)) return false;
  }
  for (size_t i = small_units_; i < units_.size(); i++) {
    if (!check_unit(i, roots)) return false;
  }
  if (relations_.empty() && identities_.size() < 2) return true;
  const Combination* known = combination();
  return known != nullptr && combination_holds(*known);
}

// What the current bindings imply together; null (with a failure set) if that is a mismatch.
Combination* GuardProgram::combination() {
  for (size_t i = 0; i < combinations_.size(); i++) {
    if (combinations_[i].ids != ids_) continue;
    if (i > 0) std::swap(combinations_[0], combinations_[i]);
    return &combinations_[0];
  }
  if (!relations_hold() || !identities_hold()) return nullptr;
  Combination made;
  made.ids = ids_;
  std::vector<bool> is_stable(nodes_.size());
  for (const Unit& unit : units_) {
    if (unit.resident == 0) continue;
    const auto binding = std::find_if(unit.bindings.begin(), unit.bindings.end(),
                                      [&](const auto& candidate) { return candidate->id == unit.resident; });
    std::copy((*binding)->is_stable.begin(), (*binding)->is_stable.end(), is_stable.begin() + unit.begin);
  }
  for (uint32_t node : identities_) {
    if (!is_stable[node]) {
      made.identities.push_back(node);
    } else if (found_[node] != nullptr) {
      made.addresses.push_back(address_of(found_[node], nodes_[node].step.access));
    }
  }
  for (uint32_t i = 0; i < relations_.size(); i++) {
    if (!is_stable[relations_[i].left] || !is_stable[relations_[i].right]) made.relations.push_back(i);
  }
  std::sort(made.addresses.begin(), made.addresses.end());
  if (combinations_.size() >= kMaxCombinations) combinations_.pop_back();
  combinations_.insert(combinations_.begin(), std::move(made));
  return &combinations_[0];
}

bool GuardProgram::combination_holds(const Combination& known) {
  for (uint32_t i : known.relations) {
    if (!relation_holds(relations_[i])) return fail(Failure::Kind::kRelation, i);
  }
  addresses_.clear();
  for (uint32_t node : known.identities) {
    if (found_[node] == nullptr) continue;
    const uintptr_t address = address_of(found_[node], nodes_[node].step.access);
    if (has(known.addresses, address)) return identities_hold();
    addresses_.emplace_back(address, node);
  }
  return are_distinct();
}

GuardProgram::Counts GuardProgram::counts() const {
  Counts counts = counts_;
  for (const Unit& unit : units_) {
    counts.bindings += unit.bindings.size();
    for (const auto& binding : unit.bindings) {
      counts.operations +=
          binding->ops.size() + binding->words.size() + binding->empty.size() + binding->tensors.size();
    }
  }
  return counts;
}

}  // namespace alternator::guards
