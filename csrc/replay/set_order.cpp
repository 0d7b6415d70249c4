#include "replay/set_order.h"

#include "lift/source.h"
#include "replay/kinds.h"

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

void fill_set(Borrowed set, PyObject* const* elements, size_t count, SetFilling filling) {
  if (filling == SetFilling::kOneByOne) {
    for (size_t i = 0; i < count; i++) check_status(PySet_Add(set.get(), elements[i]));
    return;
  }
  Ref all = checked(PySet_New(nullptr));
  fill_set(all, elements, count, SetFilling::kOneByOne);
  check_status(_PySet_Update(set.get(), all.get()));
}

static bool same_elements(const std::vector<Ref>& a, const std::vector<Ref>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); i++) {
    if (a[i].get() != b[i].get()) return false;
  }
  return true;
}

std::optional<SetFilling> find_filling(Borrowed set) {
  const std::vector<Ref> wanted = set_elements(set);
  std::vector<PyObject*> elements;
  for (const Ref& element : wanted) {
    if (!lift::is_plain(element.get())) return SetFilling::kOneByOne;
    elements.push_back(element.get());
  }
  for (SetFilling filling : {SetFilling::kOneByOne, SetFilling::kAtOnce}) {
    Ref trial = checked(PySet_New(nullptr));
    fill_set(trial, elements.data(), elements.size(), filling);
    if (same_elements(set_elements(trial), wanted)) return filling;
  }
  return std::nullopt;
}

}  // namespace alternator::replay
