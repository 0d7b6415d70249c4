// Private copies of containers: reads, writes and guards, slot by slot.
#include "lift/lifting/containers.h"

#include "cpython/objects.h"
#include "cpython/set_tables.h"
#include "lift/lifting/container_keys.h"
#include "lift/lifting/lazy_objects.h"
#include "lift/lifting/lifter.h"
#include "lift/lifting/plain_origins.h"

namespace alternator::lift {

// From this size on, a container of plain values gets one guard, not one per element.
static constexpr Py_ssize_t kOneGuardFrom = 16;

static bool all_plain(Borrowed container) {
  auto plain = [](PyObject* value) { return is_plain(value) && !is_nan(value); };
  if (PyList_CheckExact(container.get())) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(container.get()); i++) {
      if (!plain(PyList_GET_ITEM(container.get(), i))) return false;
    }
    return true;
  }
  if (PyDict_CheckExact(container.get())) {
    PyObject *key, *value;
    for (Py_ssize_t position = 0; PyDict_Next(container.get(), &position, &key, &value);) {
      if (!plain(key) || !plain(value)) return false;
    }
    return true;
  }
  return false;
}

static bool is_one_guard(const Shadow& shadow) {
  return !shadow.owner && !shadow.is_namespace && shadow.length >= kOneGuardFrom && all_plain(shadow.original);
}

Ref Containers::dict_item(Shadow& shadow, Borrowed key) {
  Borrowed value = PyDict_GetItemWithError(shadow.copy.get(), key.get());
  if (!value && PyErr_Occurred()) throw PyError();
  lifter_.note_read(shadow.is_namespace ? value : Borrowed(shadow.copy));
  if (shadow.whole) return Ref::share(value);
  Ref name = lifter_.intern_key(key);
  if (!shadow.lifted_keys.insert(name.get()).second) return Ref::share(value);
  lifter_.keep(Ref(name));
  if (!value) {
    lifter_.guard(shadow.source, GuardKind::kLacksKey, name);
    return {};
  }
  Ref original = Ref::share(value);
  if (++shadow.slots_read == kOneGuardFrom && is_one_guard(shadow)) {
    lift_whole(shadow);
    return original;
  }
  // What is found in a namespace does not stay on the value stack.
  const bool is_dict = !shadow.owner && !shadow.is_namespace && !shadow.in_progress;
  Source* child = lifter_.tree().child(shadow.source, Access::kItem, name);
  Ref lifted = is_dict ? lifter_.lazy->lift_open(original, child) : lifter_.lift(original, child);
  check_status(PyDict_SetItem(shadow.snapshot.get(), name.get(), lifted.get()));
  check_status(PyDict_SetItem(shadow.copy.get(), name.get(), lifted.get()));
  return lifted;
}

bool Containers::dict_contains(Shadow& shadow, Borrowed key) {
  lifter_.note_read(shadow.copy);
  const bool found = has_key(shadow.copy, key);
  if (shadow.whole) return found;
  Ref name = lifter_.intern_key(key);
  if (shadow.lifted_keys.count(name.get()) == 0) {
    lifter_.guard(shadow.source, found ? GuardKind::kHasKey : GuardKind::kLacksKey, name);
    lifter_.keep(std::move(name));
  }
  return found;
}

void Containers::dict_store(Shadow& shadow, Borrowed key, Borrowed value) {
  lifter_.note_read(shadow.copy);
  Ref name = lifter_.intern_key(key);
  if (!shadow.whole && shadow.lifted_keys.count(name.get()) == 0) {
    // Whether the key was present decides its position in insertion order.
    const bool found = has_key(shadow.copy, name);
    lifter_.guard(shadow.source, found ? GuardKind::kHasKey : GuardKind::kLacksKey, name);
    shadow.lifted_keys.insert(name.get());
    lifter_.keep(Ref(name));
    if (found) {
      // The previous value may differ in another call: even storing the same object again is a mutation.
      Ref anything = checked(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type)));
      check_status(PyDict_SetItem(shadow.snapshot.get(), name.get(), anything.get()));
    }
  }
  // A new key is kept as given: True and 1 are equal keys, but different objects.
  Ref kept = PyUnicode_CheckExact(key.get()) ? Ref(name) : Ref::share(key);
  if (!value) {
    shadow.deleted_keys.insert(name.get());
    shadow.deleted_keys.insert(lifter_.keep(Ref(kept)));
  }
  check_status(value ? PyDict_SetItem(shadow.copy.get(), kept.get(), value.get())
                     : PyDict_DelItem(shadow.copy.get(), kept.get()));
}

void Containers::guard_length(Shadow& shadow) {
  if (!shadow.steps.empty()) guard_contents(shadow);  // the change in size depends on the elements that were there
  lifter_.guard(shadow.source, GuardKind::kLength, {}, shadow.length);
}

void Containers::guard_truth(Shadow& shadow) {
  if (!shadow.steps.empty()) guard_contents(shadow);
  lifter_.guard(shadow.source, GuardKind::kTruth, {}, shadow.length > 0 ? 1 : 0);
}

Ref Containers::list_item(Shadow& shadow, Py_ssize_t index) {
  // Bypasses methods of a list subclass; a deque is always exact.
  const bool is_list = shadow.kind == ShadowKind::kList;
  Ref value = is_list ? Ref::share(PyList_GET_ITEM(shadow.copy.get(), index))
                      : checked(PySequence_GetItem(shadow.copy.get(), index));
  if (shadow.whole || index >= shadow.length || shadow.lifted_slots[static_cast<size_t>(index)]) return value;
  if (++shadow.slots_read == kOneGuardFrom && is_one_guard(shadow)) {
    lift_whole(shadow);
    return value;
  }
  Source* child = lifter_.tree().child(shadow.source, Access::kIndex, {}, index);
  Ref lifted = shadow.in_progress ? lifter_.lift(value, child) : lifter_.lazy->lift_open(value, child);
  shadow.lifted_slots[static_cast<size_t>(index)] = true;
  check_status(PyList_SetItem(shadow.snapshot.get(), index, Py_NewRef(lifted.get())));
  check_status(is_list ? PyList_SetItem(shadow.copy.get(), index, Py_NewRef(lifted.get()))
                       : PySequence_SetItem(shadow.copy.get(), index, lifted.get()));
  return lifted;
}

void Containers::guard_keys(Shadow& dict) {
  if (!dict.whole) lifter_.guard(dict.source, GuardKind::kKeys, checked(PySequence_Tuple(dict.original.get())));
}

void Containers::guard_contents(Shadow& set) {
  if (!set.unseen) return;
  set.unseen = false;
  lifter_.guard(set.source, GuardKind::kEquals, set.original);
  lifter_.origins->note_guarded_whole(set.original);
}

// Guards whether one element is present. False: only the guard on all elements could decide that.
bool Containers::guard_element(Shadow& set, Borrowed element) {
  const Found found = is_plain(element.get()) && !is_nan(element.get())
                          ? find_element(set.original.get(), element.get())
                          : Found::kUnknown;
  if (found == Found::kUnknown) return false;
  lifter_.guard(set.source, found == Found::kYes ? GuardKind::kHasKey : GuardKind::kLacksKey, element);
  return true;
}

bool Containers::set_contains(Shadow& shadow, Borrowed element) {
  lifter_.note_read(shadow.copy);
  if (shadow.unseen && !guard_element(shadow, element)) guard_contents(shadow);
  return contains(shadow.copy, element).value();
}

void Containers::before_set_step(Borrowed set, SetStepKind kind, Borrowed element) {
  Known* k = lifter_.known(set);
  if (k == nullptr || k->shadow == nullptr || !k->shadow->unseen) return;
  // An element that is removed must be the one that was removed in the trace.
  if (kind != SetStepKind::kAdded || !element || !guard_element(*k->shadow, element)) guard_contents(*k->shadow);
}

void Containers::note_set_step(Borrowed set, SetStepKind kind, Borrowed element) {
  Known* k = lifter_.known(set);
  if (k == nullptr || k->shadow == nullptr || k->shadow->kind != ShadowKind::kSet) return;
  if (element && (!is_plain(element.get()) || is_nan(element.get()))) lift_whole(*k->shadow);
  k->shadow->steps.push_back({kind, element ? Ref::share(element) : Ref()});
}

static bool hash_natively(Borrowed keys_of_dict) {
  PyObject *key, *value;
  for (Py_ssize_t position = 0; PyDict_Next(keys_of_dict.get(), &position, &key, &value);) {
    if (!PyUnicode_CheckExact(key) && !hashes_natively(key)) return false;
  }
  return true;
}

void Containers::lift_dict_whole(Shadow& shadow) {
  Ref keys = keys_of(shadow.original);
  lifter_.guard(shadow.source, GuardKind::kKeys, keys);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys.get()); i++) {
    Borrowed key = PyTuple_GET_ITEM(keys.get(), i);
    if (!is_plain(key.get()) || is_nan(key.get())) {
      Ref lifted_key = lifter_.lift(key, lifter_.tree().child(shadow.source, Access::kKey, {}, i));
      if (Borrowed(lifted_key) != key) throw CannotLift("a dict key that needs a private copy");
    }
    if (!has_key(shadow.copy, key)) continue;  // deleted by the program
    lifter_.escape(dict_item(shadow, key));
  }
}

void Containers::lift_whole(Shadow& shadow) {
  if (shadow.whole || shadow.in_progress) return;  // a container may contain itself
  shadow.in_progress = true;
  if (is_one_guard(shadow)) {
    lifter_.guard(shadow.source, GuardKind::kEquals, shadow.original);
    lifter_.origins->note_guarded_whole(shadow.original);
  } else if (shadow.kind == ShadowKind::kList || shadow.kind == ShadowKind::kDeque) {
    guard_length(shadow);
    for (Py_ssize_t i = 0; i < shadow.length && i < Py_SIZE(shadow.copy.get()); i++)
      lifter_.escape(list_item(shadow, i));
  } else if (shadow.kind == ShadowKind::kDict) {
    // Hashing the keys is not part of the program's execution.
    if (lifter_.untraced && !hash_natively(shadow.original)) {
      lifter_.untraced([&] { lift_dict_whole(shadow); });
    } else {
      lift_dict_whole(shadow);
    }
  } else if (shadow.kind == ShadowKind::kSet) {
    guard_contents(shadow);
    // The position of new elements depends on that of the present ones. Elements hashed by address have other positions
    // in another call: the program must not observe their order.
    const uint64_t layout = cpython::set_layout(shadow.original.get());
    lifter_.guard(shadow.source, GuardKind::kSetLayout, {}, static_cast<Py_ssize_t>(layout));
  }
  shadow.in_progress = false;
  shadow.whole = true;
}

}  // namespace alternator::lift
