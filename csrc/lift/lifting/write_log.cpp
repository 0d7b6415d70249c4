// What the program did to pre-existing objects so far.
#include "lift/lifting/write_log.h"

#include "lift/lifting/cells.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/decimal_contexts.h"
#include "lift/lifting/fields.h"
#include "lift/lifting/iterators.h"
#include "lift/lifting/lifter.h"
#include "lift/sources/decimal_values.h"
#include "lift/sources/plain.h"

#include <algorithm>

namespace alternator::lift {

static bool same_items(Borrowed a, Borrowed b) {
  if (PyDict_Check(a.get())) {
    if (PyDict_GET_SIZE(a.get()) != PyDict_GET_SIZE(b.get())) return false;
    PyObject *key, *value;
    for (Py_ssize_t position = 0; PyDict_Next(a.get(), &position, &key, &value);) {
      if (PyDict_GetItemWithError(b.get(), key) != value) return PyErr_Clear(), false;
    }
    return true;
  }
  Ref left = checked(PySequence_Tuple(a.get())), right = checked(PySequence_Tuple(b.get()));
  if (PyTuple_GET_SIZE(left.get()) != PyTuple_GET_SIZE(right.get())) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(left.get()); i++) {
    if (PyTuple_GET_ITEM(left.get(), i) != PyTuple_GET_ITEM(right.get(), i)) return false;
  }
  return true;
}

bool is_written(const Shadow& shadow) {
  return !shadow.deleted_keys.empty() || !shadow.steps.empty() || !same_items(shadow.copy, shadow.snapshot);
}

void WriteLog::drop_effect(Borrowed callable, Borrowed first) {
  std::erase_if(effects_, [&](const EffectCall& call) {
    return Borrowed(call.callable) == callable && PyTuple_GET_SIZE(call.arguments.get()) > 0 &&
           PyTuple_GET_ITEM(call.arguments.get(), 0) == first.get();
  });
}

std::vector<VariableWrite> WriteLog::writes() const {
  std::vector<VariableWrite> writes;
  lifter_.cells->add_writes(writes);
  lifter_.fields->add_writes(writes);
  lifter_.classes->add_writes(writes);
  lifter_.iterators->add_writes(writes);
  return writes;
}

bool WriteLog::has_writes() const {
  return !effects_.empty() || lifter_.cells->has_writes() || lifter_.fields->has_writes() ||
         lifter_.classes->has_writes() || lifter_.iterators->has_writes() ||
         std::ranges::any_of(lifter_.containers->shadows(), is_written);
}

// Added contents of a copy, keys and values alternating; null: removed ones.
static std::vector<Ref> difference(const Shadow& shadow) {
  std::vector<Ref> changes;
  if (shadow.kind != ShadowKind::kDict) {
    for (const SetStep& step : shadow.steps) changes.push_back(step.element);
    if (same_items(shadow.copy, shadow.snapshot)) return changes;
    Ref items = checked(PySequence_Tuple(shadow.copy.get()));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); i++)
      changes.push_back(Ref::share(PyTuple_GET_ITEM(items.get(), i)));
    if (changes.empty()) changes.emplace_back();
    return changes;
  }
  auto compare = [&](Borrowed from, Borrowed with, bool absent_only) {
    PyObject *key, *value;
    for (Py_ssize_t position = 0; PyDict_Next(from.get(), &position, &key, &value);) {
      PyObject* other = PyDict_GetItemWithError(with.get(), key);
      PyErr_Clear();
      if (absent_only ? other != nullptr : other == value) continue;
      changes.push_back(Ref::share(key));
      changes.push_back(absent_only ? Ref() : Ref::share(value));
    }
  };
  compare(shadow.copy, shadow.snapshot, false);
  compare(shadow.snapshot, shadow.copy, true);
  for (PyObject* key : shadow.deleted_keys) changes.push_back(Ref::share(key));
  return changes;
}

WriteMark WriteLog::mark() const {
  WriteMark mark{effects_.size(), writes(), {}, {}};
  for (const Shadow& shadow : lifter_.containers->shadows()) mark.shadows.push_back(difference(shadow));
  for (const DecimalContext& context : lifter_.decimals->all()) mark.decimals.push_back(parts_of_context(context.copy));
  return mark;
}

bool WriteLog::has_writes_since(const WriteMark& mark) const {
  const std::vector<VariableWrite> variables = writes();
  if (effects_.size() != mark.effects || variables.size() != mark.variables.size()) return true;
  for (size_t i = 0; i < variables.size(); i++) {
    const VariableWrite &now = variables[i], &before = mark.variables[i];
    if (now.owner != before.owner || now.name.get() != before.name.get()) return true;
    const bool same = now.kind == VariableKind::kIterator ? plain_equal(now.value.get(), before.value.get())
                                                          : now.value.get() == before.value.get();
    if (!same) return true;
  }
  auto same = [](const Ref& a, const Ref& b) { return a.get() == b.get(); };
  const std::deque<Shadow>& shadows = lifter_.containers->shadows();
  for (size_t i = 0; i < shadows.size(); i++) {
    const std::vector<Ref> changes = difference(shadows[i]);
    const std::vector<Ref> before = i < mark.shadows.size() ? mark.shadows[i] : std::vector<Ref>();
    if (!std::ranges::equal(changes, before, same)) return true;
  }
  const std::vector<DecimalContext>& contexts = lifter_.decimals->all();
  for (size_t i = 0; i < contexts.size(); i++) {
    const Ref& before = i < mark.decimals.size() ? mark.decimals[i] : contexts[i].before;
    if (!plain_equal(parts_of_context(contexts[i].copy).get(), before.get())) return true;
  }
  return false;
}

}  // namespace alternator::lift
