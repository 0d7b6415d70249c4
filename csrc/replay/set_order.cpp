#include "replay/set_order.h"

#include "cpython/dict_tables.h"
#include "cpython/objects.h"
#include "cpython/set_tables.h"
#include "lift/sources/source.h"
#include "replay/known_hashes.h"
#include "replay/rebuild_kinds.h"

#include <algorithm>
#include <unordered_map>

namespace alternator::replay {

std::vector<Ref> set_elements(Borrowed set) {
  std::vector<Ref> elements;
  PyObject* element;
  Py_hash_t hash;
  for (Py_ssize_t position = 0; _PySet_NextEntry(set.get(), &position, &element, &hash) != 0;) {
    elements.push_back(Ref::share(element));
  }
  return elements;
}

std::unordered_map<PyObject*, Py_hash_t> element_hashes(Borrowed set) {
  std::unordered_map<PyObject*, Py_hash_t> hashes;
  PyObject* element;
  Py_hash_t hash;
  for (Py_ssize_t position = 0; _PySet_NextEntry(set.get(), &position, &element, &hash) != 0;) hashes[element] = hash;
  return hashes;
}

std::vector<Ref> deque_items(Borrowed deque) {
  std::vector<Ref> items;
  Ref iterator = checked(layout_of(deque.type())->tp_iter(deque.get()));
  while (PyObject* item = PyIter_Next(iterator.get())) items.push_back(Ref::steal(item));
  if (PyErr_Occurred()) throw PyError();
  return items;
}

Ref deque_limit(Borrowed deque) {
  PyTypeObject* layout = layout_of(deque.type());
  PyObject* getter = PyDict_GetItemString(cpython::own_dict(layout), "maxlen");
  ALT_CHECK(getter != nullptr, "deque has no maxlen");
  return checked(Py_TYPE(getter)->tp_descr_get(getter, deque.get(), reinterpret_cast<PyObject*>(layout)));
}

std::vector<std::pair<Ref, Ref>> ordered_items(Borrowed dict, std::vector<Py_hash_t>* hashes) {
  // By identity: a lookup would compare keys of equal hashes.
  std::unordered_map<PyObject*, PyObject*> values;
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(dict.get(), &at, &key, &value) != 0;) values[key] = value;
  std::vector<std::pair<Ref, Ref>> items;
  void* position = nullptr;
  while (cpython::next_ordered_key(dict.get(), &position, &key)) {
    const auto found = values.find(key);
    ALT_CHECK(found != values.end(), "an OrderedDict without one of its keys");
    items.emplace_back(Ref::share(key), Ref::share(found->second));
    if (hashes != nullptr) hashes->push_back(cpython::ordered_hash(position));
  }
  return items;
}

void fill_set(Borrowed set, PyObject* const* elements, size_t count, size_t table) {
  if (table != 0 && !cpython::resize_empty_set(set.get(), table)) PyErr_NoMemory(), throw PyError();
  for (size_t i = 0; i < count; i++) check_status(PySet_Add(set.get(), elements[i]));
}

// An address-based hash does not determine the order on another run; every other hash does.
static bool has_stable_hash(Borrowed object) {
  PyObject* o = object.get();
  if (lift::is_plain(o)) return true;
  if (PyTuple_CheckExact(o)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++) {
      if (!has_stable_hash(PyTuple_GET_ITEM(o, i))) return false;
    }
    return true;
  }
  if (PyFrozenSet_CheckExact(o)) {
    const std::vector<Ref> elements = set_elements(object);
    return std::all_of(elements.begin(), elements.end(), [](const Ref& element) { return has_stable_hash(element); });
  }
  return layout_of(object.type()) != object.type() && object.type()->tp_hash != PyBaseObject_Type.tp_hash;
}

// The elements of some sets, with a stand-in for each while orders are tried: their own __hash__ and __eq__ are not
// called.
class StandIns {
 public:
  // False: the order of this set cannot be reproduced.
  bool add(Borrowed set) {
    PyObject* element;
    Py_hash_t hash;
    for (Py_ssize_t position = 0; _PySet_NextEntry(set.get(), &position, &element, &hash) != 0;) {
      if (!has_stable_hash(element)) return false;
      if (by_element_.count(element) != 0) continue;
      by_element_[element] = make_stand_in(element, hash);
    }
    return true;
  }
  // For a plain value that may have been added and removed.
  PyObject* of_plain(Borrowed value) {
    if (!plain_) {
      plain_ = checked(PyDict_New());
      for (const auto& [element, stand_in] : by_element_) {
        if (lift::is_plain(element)) check_status(PyDict_SetItem(plain_.get(), element, stand_in.get()));
      }
    }
    if (PyObject* found = PyDict_GetItemWithError(plain_.get(), value.get())) return found;
    if (PyErr_Occurred()) throw PyError();
    Ref made = make_stand_in(value, PyObject_Hash(value.get()));
    check_status(PyDict_SetItem(plain_.get(), value.get(), made.get()));
    return made.get();
  }
  PyObject* of(Borrowed element) const { return by_element_.at(element.get()).get(); }
  std::vector<PyObject*> of(const std::vector<Ref>& elements) const {
    std::vector<PyObject*> found;
    for (const Ref& element : elements) found.push_back(of(element));
    return found;
  }

 private:
  std::unordered_map<PyObject*, Ref> by_element_;
  Ref plain_;  // a dict: plain value -> its stand-in
};

static bool iterates_as(Borrowed trial, const std::vector<Ref>& wanted) {
  const std::vector<Ref> found = set_elements(trial);
  if (found.size() != wanted.size()) return false;
  for (size_t i = 0; i < found.size(); i++) {
    if (found[i].as<StandIn>()->key != wanted[i].get()) return false;
  }
  return true;
}

// Calls attempt(order) with orders of the elements until one is accepted: the current one, every permutation of a few
// elements, else every rotation.
template <class Attempt>
static bool try_orders(std::vector<Ref> elements, Attempt&& attempt) {
  static constexpr size_t kFew = 5;
  std::vector<size_t> order(elements.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  auto accepted = [&] {
    std::vector<Ref> arranged;
    for (size_t i : order) arranged.push_back(elements[i]);
    return attempt(std::move(arranged));
  };
  if (elements.size() <= kFew) {
    do {
      if (accepted()) return true;
    } while (std::next_permutation(order.begin(), order.end()));
    return false;
  }
  for (size_t i = 0; i < elements.size(); i++) {
    if (accepted()) return true;
    std::rotate(order.begin(), order.begin() + 1, order.end());
  }
  return false;
}

std::optional<SetPlan> plan_filling(Borrowed set) {
  const std::vector<Ref> wanted = set_elements(set);
  StandIns stand_ins;
  if (!stand_ins.add(set)) return SetPlan{0, wanted};
  if (std::optional<std::vector<PyObject*>> order = cpython::set_filling_order(set.get())) {
    SetPlan plan{cpython::set_table_size(set.get()), {}};
    for (PyObject* element : *order) plan.elements.push_back(Ref::share(element));
    return plan;
  }
  SetPlan plan;
  const bool found = try_orders(wanted, [&](std::vector<Ref> order) {
    const std::vector<PyObject*> elements = stand_ins.of(order);
    Ref trial = checked(PySet_New(nullptr));
    fill_set(trial, elements.data(), elements.size(), plan.table);
    if (!iterates_as(trial, wanted)) return false;
    plan.elements = std::move(order);
    return true;
  });
  if (!found) return std::nullopt;
  return plan;
}

// In the way the private copy was made.
static Ref copy_with(const StandIns& stand_ins, Borrowed set) {
  Ref copy = checked(PySet_New(nullptr));
  if (!cpython::copy_set_table(set.get(), copy.get(), [&](PyObject* element) { return stand_ins.of(element); })) {
    PyErr_NoMemory();
    throw PyError();
  }
  return copy;
}

bool are_plain(const std::vector<lift::SetStep>& steps) {
  return std::all_of(steps.begin(), steps.end(),
                     [](const lift::SetStep& step) { return !step.element || lift::is_plain(step.element.get()); });
}

bool leads_to(Borrowed start, const std::vector<lift::SetStep>& steps, Borrowed wanted) {
  StandIns stand_ins;
  if (!are_plain(steps) || !stand_ins.add(start) || !stand_ins.add(wanted)) return false;
  Ref trial = copy_with(stand_ins, start);
  for (const lift::SetStep& step : steps) {
    switch (step.kind) {
      case lift::SetStepKind::kAdded:
        check_status(PySet_Add(trial.get(), stand_ins.of_plain(step.element)));
        break;
      case lift::SetStepKind::kDiscarded:
        check_status(PySet_Discard(trial.get(), stand_ins.of_plain(step.element)));
        break;
      case lift::SetStepKind::kPopped:
        if (PySet_GET_SIZE(trial.get()) == 0) return false;
        checked(PySet_Pop(trial.get())).reset();
        break;
      case lift::SetStepKind::kCleared:
        check_status(PySet_Clear(trial.get()));
        break;
    }
  }
  return iterates_as(trial, set_elements(wanted)) &&
         cpython::set_layout(trial.get()) == cpython::set_layout(wanted.get());
}

std::optional<std::vector<Ref>> plan_adding(Borrowed start, const std::vector<Ref>& removed,
                                            const std::vector<Ref>& added, Borrowed wanted) {
  StandIns stand_ins;
  if (!stand_ins.add(start) || !stand_ins.add(wanted)) return added;
  const std::vector<Ref> order_wanted = set_elements(wanted);
  const uint64_t layout_wanted = cpython::set_layout(wanted.get());
  std::vector<Ref> plan;
  auto attempt = [&](std::vector<Ref> order, bool with_layout) {
    Ref trial = copy_with(stand_ins, start);
    for (const Ref& element : removed) check_status(PySet_Discard(trial.get(), stand_ins.of(element)));
    for (const Ref& element : order) check_status(PySet_Add(trial.get(), stand_ins.of(element)));
    if (!iterates_as(trial, order_wanted)) return false;
    if (with_layout && cpython::set_layout(trial.get()) != layout_wanted) return false;
    plan = std::move(order);
    return true;
  };
  if (try_orders(added, [&](std::vector<Ref> order) { return attempt(std::move(order), true); })) return plan;
  const bool changed = !added.empty() || !removed.empty();
  if (changed && try_orders(added, [&](std::vector<Ref> order) { return attempt(std::move(order), false); }))
    return plan;
  return std::nullopt;
}

}  // namespace alternator::replay
