#include "replay/set_order.h"

#include "lift/source.h"
#include "replay/kinds.h"

#include <algorithm>

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

std::vector<Ref> deque_items(Borrowed deque) {
  std::vector<Ref> items;
  Ref iterator = checked(layout_of(deque.type())->tp_iter(deque.get()));
  while (PyObject* item = PyIter_Next(iterator.get())) items.push_back(Ref::steal(item));
  if (PyErr_Occurred()) throw PyError();
  return items;
}

Ref deque_limit(Borrowed deque) {
  PyTypeObject* layout = layout_of(deque.type());
  PyObject* getter = PyDict_GetItemString(layout->tp_dict, "maxlen");
  ALT_CHECK(getter != nullptr, "deque has no maxlen");
  return checked(Py_TYPE(getter)->tp_descr_get(getter, deque.get(), reinterpret_cast<PyObject*>(layout)));
}

std::vector<std::pair<Ref, Ref>> ordered_items(Borrowed dict) {
  std::vector<std::pair<Ref, Ref>> items;
  Ref iterator = checked(PyODict_Type.tp_iter(dict.get()));
  while (PyObject* key = PyIter_Next(iterator.get())) {
    Ref owned = Ref::steal(key);
    PyObject* value = PyDict_GetItemWithError(dict.get(), key);
    if (value == nullptr) {
      if (PyErr_Occurred()) throw PyError();
      ALT_CHECK(false, "an OrderedDict without one of its keys");
    }
    items.emplace_back(std::move(owned), Ref::share(value));
  }
  if (PyErr_Occurred()) throw PyError();
  return items;
}

// A dict as the source of a set: its length is known beforehand.
static Ref keys_of(PyObject* const* elements, size_t count) {
  Ref keys = checked(PyDict_New());
  for (size_t i = 0; i < count; i++) check_status(PyDict_SetItem(keys.get(), elements[i], Py_None));
  return keys;
}

void fill_set(Borrowed set, PyObject* const* elements, size_t count, SetFilling filling) {
  if (filling == SetFilling::kAtOnce) return check_status(_PySet_Update(set.get(), keys_of(elements, count).get()));
  for (size_t i = 0; i < count; i++) check_status(PySet_Add(set.get(), elements[i]));
}

Ref make_frozenset(PyObject* const* elements, size_t count, SetFilling filling) {
  if (filling == SetFilling::kAtOnce) return checked(PyFrozenSet_New(keys_of(elements, count).get()));
  Ref set = checked(PyFrozenSet_New(nullptr));
  for (size_t i = 0; i < count; i++) check_status(PySet_Add(set.get(), elements[i]));
  return set;
}

static bool iterates_as(Borrowed set, const std::vector<Ref>& wanted) {
  const std::vector<Ref> elements = set_elements(set);
  if (elements.size() != wanted.size()) return false;
  for (size_t i = 0; i < elements.size(); i++) {
    if (elements[i].get() != wanted[i].get()) return false;
  }
  return true;
}

static bool all_plain(const std::vector<Ref>& elements) {
  return std::all_of(elements.begin(), elements.end(),
                     [](const Ref& element) { return lift::is_plain(element.get()); });
}

// Calls attempt(order) with orders of the elements until one is accepted: as they stand, every other for a few
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
  if (!all_plain(wanted)) return SetPlan{SetFilling::kOneByOne, wanted};
  SetPlan plan;
  for (SetFilling filling : {SetFilling::kOneByOne, SetFilling::kAtOnce}) {
    plan.filling = filling;
    const bool found = try_orders(wanted, [&](std::vector<Ref> order) {
      std::vector<PyObject*> elements;
      for (const Ref& element : order) elements.push_back(element.get());
      Ref trial = checked(PySet_New(nullptr));
      fill_set(trial, elements.data(), elements.size(), filling);
      if (!iterates_as(trial, wanted)) return false;
      plan.elements = std::move(order);
      return true;
    });
    if (found) return plan;
  }
  return std::nullopt;
}

std::optional<std::vector<Ref>> plan_adding(Borrowed start, const std::vector<Ref>& removed,
                                            const std::vector<Ref>& added, const std::vector<Ref>& wanted) {
  if (!all_plain(wanted) || !all_plain(removed)) return added;
  std::vector<Ref> plan;
  const bool found = try_orders(added, [&](std::vector<Ref> order) {
    Ref trial = checked(PySet_New(start.get()));
    for (const Ref& element : removed) check_status(PySet_Discard(trial.get(), element.get()));
    for (const Ref& element : order) check_status(PySet_Add(trial.get(), element.get()));
    if (!iterates_as(trial, wanted)) return false;
    plan = std::move(order);
    return true;
  });
  if (!found) return std::nullopt;
  return plan;
}

}  // namespace alternator::replay
