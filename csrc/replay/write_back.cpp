// Write-back: the difference, by identity, between each private copy and its snapshot from when it was lifted.
#include "cpython/deque_iterator.h"
#include "cpython/objects.h"
#include "cpython/set_tables.h"
#include "replay/builder.h"
#include "replay/known_hashes.h"
#include "replay/replay_mutants.h"
#include "replay/set_order.h"
#include "replay/tensors.h"

namespace alternator::replay {

namespace {

using lift::Shadow;
using lift::ShadowKind;

class Effects {
 public:
  explicit Effects(Builder& builder) : builder_(builder) {}

  std::vector<Write> collect() {
    builder_.set_early(true);  // printed values
    for (const EffectCall& call : builder_.world().calls()) {
      add(Op::kEffect, {builder_.value(call.callable), builder_.value(call.arguments), builder_.value(call.keywords)});
    }
    builder_.set_early(false);
    // First: an iterator is advanced only over containers that the program has not written to before.
    for (const lift::VariableWrite& write : builder_.world().writes()) {
      if (write.kind == lift::VariableKind::kIterator) place(write);
    }
    for (const Shadow& shadow : builder_.world().shadows()) {
      const size_t before = writes_.size();
      hashes_ = false;
      switch (shadow.kind) {
        case ShadowKind::kList:
          list(shadow);
          break;
        case ShadowKind::kDict:
          dict(shadow);
          break;
        case ShadowKind::kSet:
          set(shadow);
          break;
        case ShadowKind::kDeque:
          deque(shadow);
          break;
      }
      // All of them: their order matters.
      for (size_t i = before; i < writes_.size(); i++) writes_[i].hashes = hashes_;
      if (writes_.size() > before) written_[static_cast<size_t>(shadow.kind)] = true;
    }
    for (const lift::VariableWrite& write : builder_.world().writes()) {
      if (write.kind != lift::VariableKind::kIterator) place(write);
    }
    mark_identities();
    return std::move(writes_);
  }

 private:
  void add(Op op, std::vector<Operand> operands, int64_t number = 0) {
    if (is_disabled(name_of(op))) return;
    writes_.push_back({op, std::move(operands), number});
  }
  Operand number(Py_ssize_t value) { return builder_.constant(checked(PyLong_FromSsize_t(value))); }

  // Guards the identity of mutated objects: one container must not become two, nor two become one.
  void mark_identities() {
    for (const Shadow& shadow : builder_.world().shadows()) {
      if (written_[static_cast<size_t>(shadow.kind)]) shadow.source->bears_identity = true;
    }
    for (const lift::VariableWrite& write : builder_.world().writes()) write.owner->bears_identity = true;
  }

  // --- removed elements ---
  static std::unordered_set<PyObject*> as_set(const std::vector<Ref>& items) {
    std::unordered_set<PyObject*> found;
    for (const Ref& item : items) found.insert(item.get());
    return found;
  }
  void guard_finalizations(const Shadow& shadow, const std::vector<Ref>& before, const std::vector<Ref>& after,
                           lift::Access access) {
    const std::unordered_set<PyObject*> kept = as_set(after);
    for (size_t i = 0; i < before.size(); i++) {
      if (kept.count(before[i].get()) == 0)
        builder_.world().guard_finalization(shadow, access, {}, static_cast<Py_ssize_t>(i));
    }
  }

  // --- lists and deques ---
  void check_lifted(const Shadow& shadow, const std::vector<Ref>& snapshot, Borrowed element) {
    if (shadow.whole || lift::is_plain(element.get())) return;
    for (size_t i = 0; i < snapshot.size() && i < shadow.lifted_slots.size(); i++) {
      if (!shadow.lifted_slots[i] && snapshot[i].get() == element.get()) {
        throw CannotRebuild("the container " + shadow.source->text() + " was changed where it had not been read");
      }
    }
  }

  static std::vector<Ref> items_of_list(Borrowed list) {
    std::vector<Ref> items;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); i++)
      items.push_back(Ref::share(PyList_GET_ITEM(list.get(), i)));
    return items;
  }

  static size_t common_prefix(const std::vector<Ref>& a, const std::vector<Ref>& b, size_t skip = 0) {
    size_t i = 0;
    while (i + skip < a.size() && i < b.size() && a[i + skip] == b[i]) i++;
    return i;
  }

  std::vector<Operand> with_items(std::vector<Operand> operands, const Shadow& shadow, const std::vector<Ref>& before,
                                  const std::vector<Ref>& items, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
      check_lifted(shadow, before, items[i]);
      operands.push_back(builder_.value(items[i]));
    }
    return operands;
  }

  void list(const Shadow& shadow) {
    const std::vector<Ref> before = items_of_list(shadow.snapshot), after = items_of_list(shadow.copy);
    const size_t prefix = common_prefix(before, after);
    if (prefix == before.size() && prefix == after.size()) return;
    const Operand target = builder_.needed(shadow.source);
    if (prefix == before.size()) {
      // Appended only: that is correct for any length.
      add(Op::kListExtend, with_items({target}, shadow, before, after, prefix, after.size()));
      return;
    }
    size_t suffix = 0;
    const size_t most = std::min(before.size(), after.size()) - prefix;
    while (suffix < most && before[before.size() - 1 - suffix] == after[after.size() - 1 - suffix]) suffix++;
    builder_.world().guard_length(shadow);
    guard_finalizations(shadow, before, after, lift::Access::kIndex);
    std::vector<Operand> operands{target, number(static_cast<Py_ssize_t>(prefix)),
                                  number(static_cast<Py_ssize_t>(before.size() - suffix))};
    add(Op::kListSplice, with_items(std::move(operands), shadow, before, after, prefix, after.size() - suffix));
  }

  void deque(const Shadow& shadow) {
    const std::vector<Ref> before = items_of_list(shadow.snapshot), after = deque_items(shadow.copy);
    size_t prefix = common_prefix(before, after);
    size_t dropped = 0;
    if (prefix == before.size() && prefix == after.size()) {
      // Elements that were added and removed change the deque's state: pre-existing iterators detect it.
      if (prefix == 0 || !cpython::was_deque_changed(shadow.copy, before.size())) return;
      dropped = 1;
    }
    guard_finalizations(shadow, before, after, lift::Access::kIndex);
    const Operand target = builder_.needed(shadow.source);
    // The remaining elements must be a prefix of the new contents; if all are dropped, that is trivially so.
    while ((prefix = common_prefix(before, after, dropped)) + dropped != before.size()) dropped++;
    if (dropped > 0) {
      builder_.world().guard_length(shadow);
      add(Op::kDequeDropLeft, {target}, static_cast<int64_t>(dropped));
    }
    if (prefix < after.size()) {
      add(Op::kDequeExtend, with_items({target}, shadow, before, after, prefix, after.size()));
    }
  }

  // --- dicts ---
  using Items = std::vector<std::pair<Ref, Ref>>;
  static Items items_of_dict(Borrowed dict) {
    if (PyODict_Check(dict.get())) return ordered_items(dict);
    Items items;
    PyObject *key, *value;
    for (Py_ssize_t position = 0; PyDict_Next(dict.get(), &position, &key, &value) != 0;) {
      items.emplace_back(Ref::share(key), Ref::share(value));
    }
    return items;
  }

  struct DictOps {
    Op set, remove;
    Operand target;
  };
  DictOps dict_ops(const Shadow& shadow) {
    if (shadow.is_namespace) return {Op::kGlobalSet, Op::kGlobalDelete, builder_.needed(shadow.source)};
    if (shadow.owner && shadow.source->access == lift::Access::kDict) {
      // Through the object: it may have no dict yet.
      return {Op::kAttributeSet, Op::kAttributeDelete, builder_.needed(shadow.source->parent)};
    }
    if (PyODict_Check(shadow.copy.get())) return {Op::kOrderedSet, Op::kOrderedDelete, builder_.needed(shadow.source)};
    return {Op::kDictSet, Op::kDictDelete, builder_.needed(shadow.source)};
  }

  void check_lifted(const Shadow& shadow, Borrowed key, Borrowed value) {
    if (shadow.whole || shadow.lifted_keys.count(key.get()) != 0 || lift::is_plain(value.get())) return;
    throw CannotRebuild("the order of " + shadow.source->text() + " was changed where it had not been read");
  }

  // Most dicts are: the same keys in the same order, with the same values.
  static bool is_unchanged(const Shadow& shadow) {
    PyObject *before = shadow.snapshot.get(), *after = shadow.copy.get();
    if (!shadow.deleted_keys.empty() || PyODict_Check(before) || PyODict_Check(after)) return false;
    if (PyDict_GET_SIZE(before) != PyDict_GET_SIZE(after)) return false;
    PyObject *old_key, *old_value, *key, *value;
    Py_ssize_t old_position = 0, position = 0;
    while (PyDict_Next(before, &old_position, &old_key, &old_value) != 0) {
      if (PyDict_Next(after, &position, &key, &value) == 0 || key != old_key || value != old_value) return false;
    }
    return true;
  }

  void dict(const Shadow& shadow) {
    if (is_unchanged(shadow)) return;
    const Items before = items_of_dict(shadow.snapshot), after = items_of_dict(shadow.copy);
    std::unordered_map<PyObject*, size_t> old_places;
    for (size_t i = 0; i < before.size(); i++) old_places[before[i].first.get()] = i;
    // Keys that keep their position: the longest prefix of `after` that is in the old order.
    size_t kept = 0, next = 0;
    std::vector<bool> stays(before.size(), false);
    for (; kept < after.size(); kept++) {
      auto place = old_places.find(after[kept].first.get());
      if (place == old_places.end() || place->second < next || was_deleted(shadow, after[kept].first)) break;
      stays[place->second] = true;
      next = place->second + 1;
    }
    bool changed = kept < after.size();
    for (size_t i = 0; i < before.size() && !changed; i++) changed = !stays[i];
    for (size_t i = 0; i < kept && !changed; i++) changed = is_new_value(before, old_places, after[i]);
    if (!changed) return;

    guard_finalizations(shadow, before, after);
    const DictOps ops = dict_ops(shadow);
    for (size_t i = 0; i < before.size(); i++) {
      if (!stays[i]) add(ops.remove, {ops.target, builder_.value(before[i].first)});
    }
    // From here on, no key of `after` is in the dict.
    const KnownHashes hashes = hashes_from(shadow.copy, after, kept);
    hashes_ = hashes.are_asked();
    for (size_t i = 0; i < after.size(); i++) {
      const auto& [key, value] = after[i];
      const bool is_new = is_new_value(before, old_places, after[i]);
      if (i < kept && !is_new) continue;
      if (!is_new) check_lifted(shadow, key, value);
      if (i >= kept && hashes.are_known()) break;
      add(ops.set, {ops.target, builder_.value(key), builder_.value(value)});
    }
    if (!hashes.are_known()) return;
    std::vector<Operand> operands{ops.target, builder_.constant(hashes.packed())};
    for (size_t i = kept; i < after.size(); i++) {
      operands.push_back(builder_.value(after[i].first));
      operands.push_back(builder_.value(after[i].second));
    }
    add(Op::kDictAppend, std::move(operands), ops.set == Op::kAttributeSet ? 1 : 0);
  }

  // Of the keys from there on.
  KnownHashes hashes_from(Borrowed dict, const Items& items, size_t from) {
    KnownHashes hashes;
    if (cpython::has_str_keys_only(dict.get())) return hashes;
    std::unordered_map<PyObject*, Py_hash_t> stored;
    PyObject *key, *value;
    Py_hash_t hash;
    for (Py_ssize_t position = 0; cpython::next_hashed_entry(dict.get(), &position, &key, &value, &hash);)
      stored[key] = hash;
    for (size_t i = from; i < items.size(); i++) hashes.add(builder_, items[i].first, stored.at(items[i].first.get()));
    return hashes;
  }

  void guard_finalizations(const Shadow& shadow, const Items& before, const Items& after) {
    std::unordered_set<PyObject*> keys, values;
    for (const auto& [key, value] : after) keys.insert(key.get()), values.insert(value.get());
    for (size_t i = 0; i < before.size(); i++) {
      const auto& [key, value] = before[i];
      const auto index = static_cast<Py_ssize_t>(i);
      const bool is_named = lift::is_plain(key.get());
      if (!is_named && keys.count(key.get()) == 0)
        builder_.world().guard_finalization(shadow, lift::Access::kKey, {}, index);
      if (values.count(value.get()) != 0) continue;
      if (is_tensor(key)) {
        builder_.world().guard_finalization(shadow, lift::Access::kValue, {}, index);
      } else {
        builder_.world().guard_finalization(shadow, lift::Access::kItem, key, 0);
      }
    }
  }

  static bool is_new_value(const Items& before, const std::unordered_map<PyObject*, size_t>& places,
                           const std::pair<Ref, Ref>& item) {
    auto place = places.find(item.first.get());
    return place == places.end() || before[place->second].second.get() != item.second.get();
  }

  // A key that was deleted and set again is at the end now, whatever followed it.
  static bool was_deleted(const Shadow& shadow, const Ref& key) { return shadow.deleted_keys.count(key.get()) != 0; }

  // --- sets ---
  void set(const Shadow& shadow) {
    guard_finalizations(shadow, items_of_list(shadow.snapshot), set_elements(shadow.copy), lift::Access::kElement);
    if (!shadow.steps.empty() && leads_to(shadow.original, shadow.steps, shadow.copy)) {
      const Operand target = builder_.needed(shadow.source);
      for (const lift::SetStep& step : shadow.steps) {
        static constexpr Op kOps[] = {Op::kSetAdd, Op::kSetDiscard, Op::kSetPop, Op::kSetClear};
        std::vector<Operand> operands{target};
        if (step.element) operands.push_back(builder_.value(step.element));
        add(kOps[static_cast<size_t>(step.kind)], std::move(operands));
      }
      return;
    }
    const std::vector<Ref> before = items_of_list(shadow.snapshot), after = set_elements(shadow.copy);
    std::unordered_set<PyObject*> old_elements, new_elements;
    for (const Ref& element : before) old_elements.insert(element.get());
    for (const Ref& element : after) new_elements.insert(element.get());
    std::vector<Ref> removed, added;
    for (const Ref& element : before) {
      if (new_elements.count(element.get()) == 0) removed.push_back(element);
    }
    for (const Ref& element : after) {
      if (old_elements.count(element.get()) == 0) added.push_back(element);
    }
    if (removed.empty() && added.empty() && (same_layout(shadow) || !are_plain(shadow.steps))) return;
    if (shadow.unseen)
      throw CannotRebuild("the set " + shadow.source->text() + " was changed where it had not been read");
    // The elements are added to the real set in an order that gives the copy's order; in which order the program added
    // them is not known.
    std::optional<std::vector<Ref>> order = plan_adding(shadow.original, removed, added, shadow.copy);
    if (!order) throw CannotRebuild("the order of the set " + shadow.source->text() + " cannot be reproduced");
    const Operand target = builder_.needed(shadow.source);
    for (const Ref& element : removed) add(Op::kSetDiscard, {target, builder_.value(element)});
    const std::unordered_map<PyObject*, Py_hash_t> stored = element_hashes(shadow.copy);
    KnownHashes hashes;
    for (const Ref& element : *order) hashes.add(builder_, element, stored.at(element.get()));
    hashes_ = hashes.are_asked();
    if (!hashes.are_known()) {
      for (const Ref& element : *order) add(Op::kSetAdd, {target, builder_.value(element)});
      return;
    }
    std::vector<Operand> operands{target, builder_.constant(hashes.packed())};
    for (const Ref& element : *order) operands.push_back(builder_.value(element));
    add(Op::kSetAppend, std::move(operands));
  }

  static bool same_layout(const Shadow& shadow) {
    return cpython::set_layout(shadow.original.get()) == cpython::set_layout(shadow.copy.get());
  }

  // --- variables ---
  void place(const lift::VariableWrite& write) {
    const Operand owner = builder_.needed(write.owner);
    if (write.kind == lift::VariableKind::kIterator)
      return add(Op::kIteratorNext, {owner}, PyLong_AsLongLong(write.value.get()));
    const bool set = static_cast<bool>(write.value);
    Op op = set ? Op::kCellSet : Op::kCellDelete;
    std::vector<Operand> operands{owner};
    if (write.kind != lift::VariableKind::kCell) {
      const bool field = write.kind == lift::VariableKind::kField;
      op = field ? (set ? Op::kFieldSet : Op::kFieldDelete) : (set ? Op::kTypeAttributeSet : Op::kTypeAttributeDelete);
      operands.push_back(builder_.value(write.name));
    }
    if (set) operands.push_back(builder_.value(write.value));
    add(op, std::move(operands));
  }

  Builder& builder_;
  std::vector<Write> writes_;
  bool written_[4] = {};
  bool hashes_ = false;  // of the current container
};

}  // namespace

std::vector<Write> collect_effects(Builder& builder) { return Effects(builder).collect(); }

}  // namespace alternator::replay
