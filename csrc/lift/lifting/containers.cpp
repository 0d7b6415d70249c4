// Private copies of containers, lifted slot by slot.
#include "lift/lifting/lifter.h"

#include "cpython/objects.h"
#include "cpython/set_tables.h"
#include "fake/python_tensor.h"
#include "lift/sources/tensor_spec.h"

#include <structmember.h>

namespace alternator::lift {

// From this size on, a container of plain values gets one guard, not one per element.
static constexpr Py_ssize_t kOneGuardFrom = 16;

// Whether hashing and comparing the key runs no Python code.
static bool has_native_hash(PyObject* key) {
  if (PyUnicode_CheckExact(key) || is_plain(key) || PyType_Check(key) || PyFunction_Check(key)) return true;
  if (PyTuple_CheckExact(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++) {
      if (!has_native_hash(PyTuple_GET_ITEM(key, i))) return false;
    }
    return true;
  }
  PyTypeObject* type = Py_TYPE(key);
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return !fake::is_tensor_object(key);
  return type->tp_hash == PyBaseObject_Type.tp_hash && type->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

// A tensor with Tensor.__hash__, which is its address.
static bool is_hashed_by_address(PyObject* key) {
  if (!fake::is_tensor_object(key)) return false;
  Ref name = checked(PyUnicode_InternFromString("__hash__"));
  PyObject* hash = _PyType_Lookup(Py_TYPE(key), name.get());
  return hash != nullptr && hash == _PyType_Lookup(reinterpret_cast<PyTypeObject*>(THPVariableClass), name.get());
}

// An instance of a Python class with object.__hash__. Another call may find another instance in its position.
static bool is_instance_hashed_by_address(PyObject* key) {
  PyTypeObject* type = Py_TYPE(key);
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !is_plain(key) && !PyType_Check(key) &&
         type->tp_hash == PyBaseObject_Type.tp_hash && type->tp_richcompare == PyBaseObject_Type.tp_richcompare &&
         layout_base(type) == &PyBaseObject_Type && has_plain_layout(type);
}

// False: tensors or such instances are among the keys.
static bool check_keys(Borrowed container) {
  PyObject *key, *value;
  Py_hash_t hash;
  if (PyDict_Check(container.get())) {
    const bool plain_type = container.type() == &PyDict_Type || container.type() == known_types().default_dict;
    bool by_address = false;
    for (Py_ssize_t position = 0; PyDict_Next(container.get(), &position, &key, &value);) {
      if (has_native_hash(key)) {
        by_address = by_address || (plain_type && is_instance_hashed_by_address(key));
        continue;
      }
      if (!plain_type || !is_hashed_by_address(key))
        throw CannotLift(std::string("a dict with a key of type ") + Py_TYPE(key)->tp_name);
      by_address = true;
    }
    return !by_address;
  } else {
    for (Py_ssize_t position = 0; _PySet_NextEntry(container.get(), &position, &key, &hash) != 0;) {
      if (!has_native_hash(key))
        throw CannotLift(std::string("a set with an element of type ") + Py_TYPE(key)->tp_name);
    }
  }
  return true;
}

// A dict's keys in its own order; bypasses methods of a subclass.
static Ref keys_of(Borrowed dict) {
  if (!PyODict_Check(dict.get())) {
    Ref keys = checked(PyTuple_New(PyDict_GET_SIZE(dict.get())));
    PyObject *key, *value;
    Py_ssize_t count = 0;
    for (Py_ssize_t position = 0; PyDict_Next(dict.get(), &position, &key, &value);)
      PyTuple_SET_ITEM(keys.get(), count++, Py_NewRef(key));
    return keys;
  }
  Ref iterator = checked(PyODict_Type.tp_iter(dict.get()));
  Ref keys = checked(PyList_New(0));
  while (Ref key = Ref::steal(PyIter_Next(iterator.get()))) check_status(PyList_Append(keys.get(), key.get()));
  if (PyErr_Occurred()) throw PyError();
  return checked(PyList_AsTuple(keys.get()));
}

// Bypasses a subclass's __contains__.
static bool has_key(Borrowed dict, Borrowed key) {
  const int found = PyDict_Contains(dict.get(), key.get());
  if (found < 0) throw PyError();
  return found != 0;
}

// Bypasses a subclass's __iter__.
static Ref elements_of(Borrowed set) {
  Ref elements = checked(PyList_New(0));
  PyObject* element;
  Py_hash_t hash;
  for (Py_ssize_t position = 0; _PySet_NextEntry(set.get(), &position, &element, &hash) != 0;)
    check_status(PyList_Append(elements.get(), element));
  return elements;
}

static PyObject* item_of(Borrowed dict, PyObject* key) {
  PyObject* value = PyDict_GetItemWithError(dict.get(), key);
  if (value == nullptr && PyErr_Occurred()) throw PyError();
  ALT_CHECK(value != nullptr, "a dict lost a key while it was read");
  return value;
}

Shadow& Lifter::add_shadow(ShadowKind kind, Borrowed original, Borrowed copy, Source* source) {
  Shadow& shadow = shadows_.emplace_back();
  shadow.kind = kind;
  shadow.original = Ref::share(original);
  shadow.copy = Ref::share(copy);
  shadow.source = source;
  switch (kind) {
    case ShadowKind::kList:
      shadow.length = PyList_GET_SIZE(copy.get());
      shadow.snapshot = checked(PyList_GetSlice(copy.get(), 0, shadow.length));
      shadow.lifted_slots.assign(static_cast<size_t>(shadow.length), false);
      break;
    case ShadowKind::kDict:
      shadow.length = PyDict_GET_SIZE(copy.get());
      if (PyDict_CheckExact(copy.get())) {
        shadow.snapshot = checked(PyDict_Copy(copy.get()));
      } else {
        shadow.snapshot = checked(PyDict_New());
        Ref keys = keys_of(copy);
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys.get()); i++) {
          PyObject* key = PyTuple_GET_ITEM(keys.get(), i);
          check_status(PyDict_SetItem(shadow.snapshot.get(), key, item_of(copy, key)));
        }
      }
      break;
    case ShadowKind::kSet:
      shadow.length = PySet_GET_SIZE(copy.get());
      shadow.snapshot = elements_of(copy);
      break;
    case ShadowKind::kDeque:
      shadow.length = PyObject_Length(copy.get());
      shadow.snapshot = checked(PySequence_List(copy.get()));
      break;
  }
  return shadow;
}

// An empty instance of the same type, without running its __init__ or __new__.
static Ref empty_like(Borrowed container, PyTypeObject* base) {
  Ref nothing = checked(PyTuple_New(0));
  return checked(base->tp_new(container.type(), nothing.get(), nullptr));
}

static Ref copy_container(Borrowed container, PyTypeObject* base) {
  PyObject* original = container.get();
  if (container.type() == &PyList_Type) return checked(PyList_GetSlice(original, 0, PyList_GET_SIZE(original)));
  if (container.type() == &PyDict_Type) return checked(PyDict_Copy(original));
  if (container.type() == &PySet_Type) return checked(PySet_New(original));
  if (PyList_Check(original)) {
    Ref copy = empty_like(container, base);
    Ref elements = checked(PyList_GetSlice(original, 0, PyList_GET_SIZE(original)));  // bypasses an overridden __iter__
    check_status(PyList_SetSlice(copy.get(), 0, 0, elements.get()));
    return copy;
  }
  if (PyDict_Check(original)) {
    Ref copy = empty_like(container, base);
    Ref keys = keys_of(container);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys.get()); i++) {
      PyObject* key = PyTuple_GET_ITEM(keys.get(), i);
      // The base's slot: bypasses an overridden __setitem__.
      check_status(base->tp_as_mapping->mp_ass_subscript(copy.get(), key, item_of(container, key)));
    }
    return copy;
  }
  throw CannotLift(std::string("a container of type ") + container.type()->tp_name);
}

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

// The __slots__ of the Python classes above a native container.
static std::vector<std::pair<Ref, Ref>> slots_of(PyTypeObject* type) {
  std::vector<std::pair<Ref, Ref>> slots;
  for (PyTypeObject* cls = type; (cls->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0; cls = cls->tp_base) {
    if (Py_SIZE(cls) == 0) continue;
    PyObject *name, *value;
    for (Py_ssize_t position = 0; PyDict_Next(cpython::own_dict(cls), &position, &name, &value) != 0;) {
      if (!Py_IS_TYPE(value, &PyMemberDescr_Type) || _PyType_Lookup(type, name) != value) continue;
      if (reinterpret_cast<PyMemberDescrObject*>(value)->d_member->type == T_OBJECT_EX)
        slots.emplace_back(Ref::share(name), Ref::share(value));
    }
  }
  return slots;
}

Ref Lifter::lift_container(Borrowed container, Source* source) {
  PyTypeObject* type = container.type();
  PyTypeObject* base = layout_base(type);
  guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(type));
  source->bears_identity = true;
  if ((PyDict_Check(container.get()) || PyAnySet_Check(container.get())) && !check_keys(container))
    return lift_dict_by_place(container, source);
  if (type != base) use_special_methods(type);

  if (PyAnySet_Check(container.get())) {
    if (base != &PySet_Type && base != &PyFrozenSet_Type)
      throw CannotLift(std::string("a set of type ") + type->tp_name);
    return lift_set(container, source);
  }
  if (base == known_types().deque) return lift_deque(container, source);

  Ref copy = copy_container(container, base);
  Shadow& shadow =
      add_shadow(PyList_Check(container.get()) ? ShadowKind::kList : ShadowKind::kDict, container, copy, source);
  Ref lifted = remember(container, std::move(copy), source);
  known_as(lifted).shadow = &shadow;
  if (type != base) lift_container_attributes(container, lifted, source);
  if (base == known_types().default_dict) lift_default_factory(container, lifted, source);
  // Only the exact types have their slots lifted one by one: others may be read by their own methods.
  if (type != &PyList_Type && type != &PyDict_Type) lift_whole(shadow);
  return lifted;
}

// Bypasses a key's __hash__, which would run Python code.
static void set_item(Borrowed dict, Borrowed key, Borrowed value) {
  check_status(fake::is_tensor_object(key.get()) ? _PyDict_SetItem_KnownHash(dict.get(), key.get(), value.get(),
                                                                             reinterpret_cast<Py_hash_t>(key.get()))
                                                 : PyDict_SetItem(dict.get(), key.get(), value.get()));
}

// Among its keys are tensors (the private copy has fakes in their place), or instances that another call may have
// reconstructed. It is lifted whole, and all its parts are found by position.
Ref Lifter::lift_dict_by_place(Borrowed dict, Source* source) {
  Ref copy = empty_like(dict, dict.type());
  Shadow& shadow = add_shadow(ShadowKind::kDict, dict, copy, source);
  shadow.whole = true;
  shadow.length = PyDict_GET_SIZE(dict.get());
  Ref lifted = remember(dict, std::move(copy), source);
  known_as(lifted).shadow = &shadow;
  if (dict.type() == known_types().default_dict) lift_default_factory(dict, lifted, source);
  Ref keys = keys_of(dict), wanted = checked(PyTuple_New(shadow.length));
  std::vector<Ref> values;
  for (Py_ssize_t i = 0; i < shadow.length; i++) {
    Borrowed key = PyTuple_GET_ITEM(keys.get(), i);
    PyObject* as_guarded = key.get();
    if (fake::is_tensor_object(key.get())) as_guarded = any_tensor();
    if (is_instance_hashed_by_address(key.get())) as_guarded = any_key();  // guards on the key check its class
    PyTuple_SET_ITEM(wanted.get(), i, Py_NewRef(as_guarded));
  }
  PyObject *key, *value;
  for (Py_ssize_t position = 0; PyDict_Next(dict.get(), &position, &key, &value);) values.push_back(Ref::share(value));
  guard(source, GuardKind::kKeys, wanted);
  Ref hash_name = checked(PyUnicode_InternFromString("__hash__"));
  // All keys before all values: both are read in order.
  std::vector<Ref> lifted_keys;
  for (Py_ssize_t i = 0; i < shadow.length; i++) {
    Borrowed original = PyTuple_GET_ITEM(keys.get(), i);
    Ref inside = Ref::share(original);
    if (!is_plain(original.get()) || is_nan(original.get())) {
      inside = lift(original, tree_.child(source, Access::kKey, {}, i));
      if (fake::is_tensor_object(original.get())) {
        (void)type_attribute(original.type(), hash_name);  // as is_hashed_by_address() found it
      } else if (Borrowed(inside) != original) {
        throw CannotLift("a dict key that needs a private copy");
      }
    }
    lifted_keys.push_back(std::move(inside));
  }
  for (Py_ssize_t i = 0; i < shadow.length; i++) {
    const auto at = static_cast<size_t>(i);
    Ref inside = lift(values[at], tree_.child(source, Access::kValue, {}, i));
    escape(inside);
    set_item(lifted, lifted_keys[at], inside);
    set_item(shadow.snapshot, lifted_keys[at], inside);
  }
  return lifted;
}

// A set is lifted whole. A set of plain values gets one guard, which compares in iteration order since equal sets may
// iterate in different orders; as long as only membership is tested, it needs none. Elements that are objects are found
// again one by one, in that order.
Ref Lifter::lift_set(Borrowed set, Source* source) {
  Ref elements = checked(PyList_AsTuple(elements_of(set).get()));
  const Py_ssize_t count = PyTuple_GET_SIZE(elements.get());
  bool plain = true, same = true;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* element = PyTuple_GET_ITEM(elements.get(), i);
    plain = plain && is_plain(element) && !is_nan(element);
  }
  const bool frozen = PyFrozenSet_Check(set.get());
  const bool exact = set.type() == &PyFrozenSet_Type || set.type() == &PySet_Type;
  std::vector<Ref> lifted_elements;
  if (plain && exact && frozen) {
    guard(source, GuardKind::kEquals, set);
    guarded_whole_.push_back(Ref::share(set));
  } else if (!(plain && exact)) {
    guard(source, GuardKind::kLength, {}, count);
    for (Py_ssize_t i = 0; i < count; i++) {
      Borrowed element = PyTuple_GET_ITEM(elements.get(), i);
      lifted_elements.push_back(lift(element, tree_.child(source, Access::kElement, {}, i)));
      escape(lifted_elements.back());
      same = same && Borrowed(lifted_elements.back()) == element;
    }
    // A set of other objects would iterate in another order than the guarded one.
    if (!same) throw CannotLift("a set of tensors or containers");
  }
  if (frozen) return lift_itself(set, source, !exact);
  Ref copy = exact ? checked(PySet_New(nullptr)) : empty_like(set, &PySet_Type);
  if (!cpython::copy_set_table(set.get(), copy.get())) PyErr_NoMemory(), throw PyError();
  Shadow& shadow = add_shadow(ShadowKind::kSet, set, copy, source);
  shadow.whole = !plain;
  shadow.unseen = plain && exact;
  if (!exact) lift_whole(shadow);
  Ref lifted = remember(set, std::move(copy), source);
  known_as(lifted).shadow = &shadow;
  if (!exact) lift_container_attributes(set, lifted, source);
  return lifted;
}

Ref Lifter::lift_deque(Borrowed deque, Source* source) {
  if (deque.type() != known_types().deque)
    throw CannotLift(std::string("a container of type ") + deque.type()->tp_name);
  Ref bound = checked(PyObject_GetAttrString(deque.get(), "maxlen"));
  Ref maxlen_name = checked(PyUnicode_InternFromString("maxlen"));
  guard(tree_.child(source, Access::kField, maxlen_name), bound.get() == Py_None ? GuardKind::kIs : GuardKind::kEquals,
        bound);
  Ref elements = checked(PySequence_List(deque.get()));
  Ref copy = checked(
      PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(deque.type()), elements.get(), bound.get(), nullptr));
  Ref lifted = remember(deque, std::move(copy), source);
  Shadow& shadow = add_shadow(ShadowKind::kDeque, deque, lifted, source);
  shadow.lifted_slots.assign(static_cast<size_t>(shadow.length), false);
  known_as(lifted).shadow = &shadow;
  return lifted;
}

void Lifter::lift_default_factory(Borrowed original, Borrowed copy, Source* source) {
  Ref factory = checked(PyObject_GetAttrString(original.get(), "default_factory"));
  Ref lifted = lift(factory, tree_.child(source, Access::kDefaultFactory));
  check_status(PyObject_SetAttrString(copy.get(), "default_factory", lifted.get()));
}

// Attributes of an instance of a container subclass: the private copy gets a private __dict__, lifted whole.
void Lifter::lift_container_attributes(Borrowed original, Borrowed copy, Source* source) {
  for (const auto& [name, slot] : slots_of(original.type())) {
    Ref value = load_field(copy, name, slot);
    if (!value) continue;
    escape(value);
    check_status(slot.type()->tp_descr_set(slot.get(), copy.get(), value.get()));
  }
  PyObject** theirs = _PyObject_GetDictPtr(original.get());
  PyObject** ours = _PyObject_GetDictPtr(copy.get());
  if (theirs == nullptr || ours == nullptr) return;
  Ref dict = *theirs != nullptr ? Ref::share(*theirs) : checked(PyDict_New());
  Source* dict_source = tree_.child(source, Access::kDict);
  Shadow* shadow = nullptr;
  // The dict itself may have been lifted before, or belong to another object too.
  if (auto seen = lifted_.find(dict.get()); seen != lifted_.end()) {
    const Known* shared = known(seen->second);
    if (shared == nullptr || shared->shadow == nullptr) throw CannotLift("a __dict__ that is something else too");
    guard_same(dict_source, shared->source);
    shadow = shared->shadow;
  } else {
    Ref private_dict = checked(PyDict_Copy(dict.get()));
    shadow = &add_shadow(ShadowKind::kDict, dict, private_dict, dict_source);
    shadow->owner = Ref::share(original);
    know(private_dict, dict, dict_source).shadow = shadow;
    lifted_[dict.get()] = private_dict.get();
    keep(std::move(private_dict));
  }
  known_as(copy).attributes = shadow;
  lift_whole(*shadow);
  Py_XDECREF(std::exchange(*ours, Py_NewRef(shadow->copy.get())));
}

void Lifter::open_attributes(Borrowed container) {
  Known* k = known(container);
  if (k == nullptr || k->attributes != nullptr) return;
  // The copy of a partial has a __dict__ if the partial has one.
  const bool has_more = container.type() == &PyODict_Type
                            ? k->shadow != nullptr
                            : container.type() == known_types().partial && *_PyObject_GetDictPtr(container.get());
  if (has_more) lift_container_attributes(Ref(k->original), container, k->source);
}

// One representative for all keys that find the same slot.
Ref Lifter::intern_key(Borrowed key) {
  if (!PyUnicode_CheckExact(key.get())) {
    // An enum's __hash__ is Python code, which the program does not run here.
    if (!is_plain(key.get()) || !hashes_natively(key.get())) return Ref::share(key);
    if (!keys_) keys_ = checked(PyDict_New());
    Borrowed first = PyDict_SetDefault(keys_.get(), key.get(), key.get());
    if (!first) throw PyError();
    return Ref::share(first);
  }
  PyObject* interned = Py_NewRef(key.get());
  PyUnicode_InternInPlace(&interned);
  return Ref::steal(interned);
}

Ref Lifter::dict_item(Shadow& shadow, Borrowed key) {
  Borrowed value = PyDict_GetItemWithError(shadow.copy.get(), key.get());
  if (!value && PyErr_Occurred()) throw PyError();
  note_read(shadow.is_namespace ? value : Borrowed(shadow.copy));
  if (shadow.whole) return Ref::share(value);
  Ref name = intern_key(key);
  if (!shadow.lifted_keys.insert(name.get()).second) return Ref::share(value);
  keep(Ref(name));
  if (!value) {
    guard(shadow.source, GuardKind::kLacksKey, name);
    return {};
  }
  Ref original = Ref::share(value);
  if (++shadow.slots_read == kOneGuardFrom && is_one_guard(shadow)) {
    lift_whole(shadow);
    return original;
  }
  // What is found in a namespace does not stay on the value stack.
  const bool is_dict = !shadow.owner && !shadow.is_namespace && !shadow.in_progress;
  Source* child = tree_.child(shadow.source, Access::kItem, name);
  Ref lifted = is_dict ? lift_open(original, child) : lift(original, child);
  check_status(PyDict_SetItem(shadow.snapshot.get(), name.get(), lifted.get()));
  check_status(PyDict_SetItem(shadow.copy.get(), name.get(), lifted.get()));
  return lifted;
}

bool Lifter::dict_contains(Shadow& shadow, Borrowed key) {
  note_read(shadow.copy);
  const bool found = has_key(shadow.copy, key);
  if (shadow.whole) return found;
  Ref name = intern_key(key);
  if (shadow.lifted_keys.count(name.get()) == 0) {
    guard(shadow.source, found ? GuardKind::kHasKey : GuardKind::kLacksKey, name);
    keep(std::move(name));
  }
  return found;
}

void Lifter::dict_store(Shadow& shadow, Borrowed key, Borrowed value) {
  note_read(shadow.copy);
  Ref name = intern_key(key);
  if (!shadow.whole && shadow.lifted_keys.count(name.get()) == 0) {
    // Whether the key was present decides its position in insertion order.
    const bool found = has_key(shadow.copy, name);
    guard(shadow.source, found ? GuardKind::kHasKey : GuardKind::kLacksKey, name);
    shadow.lifted_keys.insert(name.get());
    keep(Ref(name));
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
    shadow.deleted_keys.insert(keep(Ref(kept)));
  }
  check_status(value ? PyDict_SetItem(shadow.copy.get(), kept.get(), value.get())
                     : PyDict_DelItem(shadow.copy.get(), kept.get()));
}

void Lifter::guard_length(Shadow& shadow) {
  if (!shadow.steps.empty()) guard_contents(shadow);  // the change in size depends on the elements that were there
  guard(shadow.source, GuardKind::kLength, {}, shadow.length);
}
void Lifter::guard_truth(Shadow& shadow) {
  if (!shadow.steps.empty()) guard_contents(shadow);
  guard(shadow.source, GuardKind::kTruth, {}, shadow.length > 0 ? 1 : 0);
}

bool Lifter::is_one_guard(const Shadow& shadow) const {
  return !shadow.owner && !shadow.is_namespace && shadow.length >= kOneGuardFrom && all_plain(shadow.original);
}

Ref Lifter::list_item(Shadow& shadow, Py_ssize_t index) {
  // Bypasses methods of a list subclass; a deque is always exact.
  const bool is_list = shadow.kind == ShadowKind::kList;
  Ref value = is_list ? Ref::share(PyList_GET_ITEM(shadow.copy.get(), index))
                      : checked(PySequence_GetItem(shadow.copy.get(), index));
  if (shadow.whole || index >= shadow.length || shadow.lifted_slots[static_cast<size_t>(index)]) return value;
  if (++shadow.slots_read == kOneGuardFrom && is_one_guard(shadow)) {
    lift_whole(shadow);
    return value;
  }
  Source* child = tree_.child(shadow.source, Access::kIndex, {}, index);
  Ref lifted = shadow.in_progress ? lift(value, child) : lift_open(value, child);
  shadow.lifted_slots[static_cast<size_t>(index)] = true;
  check_status(PyList_SetItem(shadow.snapshot.get(), index, Py_NewRef(lifted.get())));
  check_status(is_list ? PyList_SetItem(shadow.copy.get(), index, Py_NewRef(lifted.get()))
                       : PySequence_SetItem(shadow.copy.get(), index, lifted.get()));
  return lifted;
}

void Lifter::guard_contents(Shadow& set) {
  if (!set.unseen) return;
  set.unseen = false;
  guard(set.source, GuardKind::kEquals, set.original);
  guarded_whole_.push_back(Ref(set.original));
}

// Guards whether one element is present. False: only the guard on all elements could decide that.
bool Lifter::guard_element(Shadow& set, Borrowed element) {
  const Found found = is_plain(element.get()) && !is_nan(element.get())
                          ? find_element(set.original.get(), element.get())
                          : Found::kUnknown;
  if (found == Found::kUnknown) return false;
  guard(set.source, found == Found::kYes ? GuardKind::kHasKey : GuardKind::kLacksKey, element);
  return true;
}

bool Lifter::set_contains(Shadow& shadow, Borrowed element) {
  note_read(shadow.copy);
  if (shadow.unseen && !guard_element(shadow, element)) guard_contents(shadow);
  return contains(shadow.copy, element).value();
}

void Lifter::before_set_step(Borrowed set, SetStepKind kind, Borrowed element) {
  Known* k = known(set);
  if (k == nullptr || k->shadow == nullptr || !k->shadow->unseen) return;
  // An element that is removed must be the one that was removed in the trace.
  if (kind != SetStepKind::kAdded || !element || !guard_element(*k->shadow, element)) guard_contents(*k->shadow);
}

void Lifter::note_set_step(Borrowed set, SetStepKind kind, Borrowed element) {
  Known* k = known(set);
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

void Lifter::lift_dict_whole(Shadow& shadow) {
  Ref keys = keys_of(shadow.original);
  guard(shadow.source, GuardKind::kKeys, keys);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys.get()); i++) {
    Borrowed key = PyTuple_GET_ITEM(keys.get(), i);
    if (!is_plain(key.get()) || is_nan(key.get())) {
      Ref lifted_key = lift(key, tree_.child(shadow.source, Access::kKey, {}, i));
      if (Borrowed(lifted_key) != key) throw CannotLift("a dict key that needs a private copy");
    }
    if (!has_key(shadow.copy, key)) continue;  // deleted by the program
    escape(dict_item(shadow, key));
  }
}

void Lifter::lift_whole(Shadow& shadow) {
  if (shadow.whole || shadow.in_progress) return;  // a container may contain itself
  shadow.in_progress = true;
  if (is_one_guard(shadow)) {
    guard(shadow.source, GuardKind::kEquals, shadow.original);
    guarded_whole_.push_back(Ref(shadow.original));
  } else if (shadow.kind == ShadowKind::kList || shadow.kind == ShadowKind::kDeque) {
    guard_length(shadow);
    for (Py_ssize_t i = 0; i < shadow.length && i < Py_SIZE(shadow.copy.get()); i++) escape(list_item(shadow, i));
  } else if (shadow.kind == ShadowKind::kDict) {
    // Hashing the keys is not part of the program's execution.
    if (untraced && !hash_natively(shadow.original)) {
      untraced([&] { lift_dict_whole(shadow); });
    } else {
      lift_dict_whole(shadow);
    }
  } else if (shadow.kind == ShadowKind::kSet) {
    guard_contents(shadow);
    // The position of new elements depends on that of the present ones. Elements hashed by address have other positions
    // in another call: the program must not observe their order.
    const uint64_t layout = cpython::set_layout(shadow.original.get());
    guard(shadow.source, GuardKind::kSetLayout, {}, static_cast<Py_ssize_t>(layout));
  }
  shadow.in_progress = false;
  shadow.whole = true;
}

}  // namespace alternator::lift
