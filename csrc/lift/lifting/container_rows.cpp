// The rows of the lifting table for containers: a private copy of each.
#include "cpython/set_tables.h"
#include "fake/python_tensor.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/container_keys.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/layouts.h"
#include "lift/lifting/lifter.h"
#include "lift/lifting/namespaces.h"
#include "lift/lifting/plain_origins.h"
#include "lift/sources/tensor_spec.h"

namespace alternator::lift {

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

Shadow& Containers::add(ShadowKind kind, Borrowed original, Borrowed copy, Source* source) {
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

Ref Containers::lift(Borrowed container, Source* source) {
  PyTypeObject* type = container.type();
  PyTypeObject* base = layout_base(type);
  lifter_.guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(type));
  source->bears_identity = true;
  if ((PyDict_Check(container.get()) || PyAnySet_Check(container.get())) && !check_keys(container))
    return lift_dict_by_position(container, source);
  if (type != base) lifter_.classes->use_special_methods(type);

  if (PyAnySet_Check(container.get())) {
    if (base != &PySet_Type && base != &PyFrozenSet_Type)
      throw CannotLift(std::string("a set of type ") + type->tp_name);
    return lift_set(container, source);
  }
  if (base == known_types().deque) return lift_deque(container, source);

  Ref copy = copy_container(container, base);
  Shadow& shadow = add(PyList_Check(container.get()) ? ShadowKind::kList : ShadowKind::kDict, container, copy, source);
  Ref lifted = lifter_.remember(container, std::move(copy), source);
  lifter_.known_as(lifted).shadow = &shadow;
  if (type != base) lifter_.namespaces->lift_attributes(container, lifted, source);
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
Ref Containers::lift_dict_by_position(Borrowed dict, Source* source) {
  Ref copy = empty_like(dict, dict.type());
  Shadow& shadow = add(ShadowKind::kDict, dict, copy, source);
  shadow.whole = true;
  shadow.length = PyDict_GET_SIZE(dict.get());
  Ref lifted = lifter_.remember(dict, std::move(copy), source);
  lifter_.known_as(lifted).shadow = &shadow;
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
  lifter_.guard(source, GuardKind::kKeys, wanted);
  Ref hash_name = checked(PyUnicode_InternFromString("__hash__"));
  // All keys before all values: both are read in order.
  std::vector<Ref> lifted_keys;
  for (Py_ssize_t i = 0; i < shadow.length; i++) {
    Borrowed original = PyTuple_GET_ITEM(keys.get(), i);
    Ref inside = Ref::share(original);
    if (!is_plain(original.get()) || is_nan(original.get())) {
      inside = lifter_.lift(original, lifter_.tree().child(source, Access::kKey, {}, i));
      if (fake::is_tensor_object(original.get())) {
        (void)lifter_.classes->attribute(original.type(), hash_name);  // as is_hashed_by_address() found it
      } else if (Borrowed(inside) != original) {
        throw CannotLift("a dict key that needs a private copy");
      }
    }
    lifted_keys.push_back(std::move(inside));
  }
  for (Py_ssize_t i = 0; i < shadow.length; i++) {
    const auto at = static_cast<size_t>(i);
    Ref inside = lifter_.lift(values[at], lifter_.tree().child(source, Access::kValue, {}, i));
    lifter_.escape(inside);
    set_item(lifted, lifted_keys[at], inside);
    set_item(shadow.snapshot, lifted_keys[at], inside);
  }
  return lifted;
}

// A set is lifted whole. A set of plain values gets one guard, which compares in iteration order since equal sets may
// iterate in different orders; as long as only membership is tested, it needs none. Elements that are objects are found
// again one by one, in that order.
Ref Containers::lift_set(Borrowed set, Source* source) {
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
    lifter_.guard(source, GuardKind::kEquals, set);
    lifter_.origins->note_guarded_whole(set);
  } else if (!(plain && exact)) {
    lifter_.guard(source, GuardKind::kLength, {}, count);
    for (Py_ssize_t i = 0; i < count; i++) {
      Borrowed element = PyTuple_GET_ITEM(elements.get(), i);
      lifted_elements.push_back(lifter_.lift(element, lifter_.tree().child(source, Access::kElement, {}, i)));
      lifter_.escape(lifted_elements.back());
      same = same && Borrowed(lifted_elements.back()) == element;
    }
    // A set of other objects would iterate in another order than the guarded one.
    if (!same) throw CannotLift("a set of tensors or containers");
  }
  if (frozen) return lifter_.lift_itself(set, source, !exact);
  Ref copy = exact ? checked(PySet_New(nullptr)) : empty_like(set, &PySet_Type);
  if (!cpython::copy_set_table(set.get(), copy.get())) PyErr_NoMemory(), throw PyError();
  Shadow& shadow = add(ShadowKind::kSet, set, copy, source);
  shadow.whole = !plain;
  shadow.unseen = plain && exact;
  if (!exact) lift_whole(shadow);
  Ref lifted = lifter_.remember(set, std::move(copy), source);
  lifter_.known_as(lifted).shadow = &shadow;
  if (!exact) lifter_.namespaces->lift_attributes(set, lifted, source);
  return lifted;
}

Ref Containers::lift_deque(Borrowed deque, Source* source) {
  if (deque.type() != known_types().deque)
    throw CannotLift(std::string("a container of type ") + deque.type()->tp_name);
  Ref bound = checked(PyObject_GetAttrString(deque.get(), "maxlen"));
  Ref maxlen_name = checked(PyUnicode_InternFromString("maxlen"));
  lifter_.guard(lifter_.tree().child(source, Access::kField, maxlen_name),
                bound.get() == Py_None ? GuardKind::kIs : GuardKind::kEquals, bound);
  Ref elements = checked(PySequence_List(deque.get()));
  Ref copy = checked(
      PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(deque.type()), elements.get(), bound.get(), nullptr));
  Ref lifted = lifter_.remember(deque, std::move(copy), source);
  Shadow& shadow = add(ShadowKind::kDeque, deque, lifted, source);
  shadow.lifted_slots.assign(static_cast<size_t>(shadow.length), false);
  lifter_.known_as(lifted).shadow = &shadow;
  return lifted;
}

void Containers::lift_default_factory(Borrowed original, Borrowed copy, Source* source) {
  Ref factory = checked(PyObject_GetAttrString(original.get(), "default_factory"));
  Ref lifted = lifter_.lift(factory, lifter_.tree().child(source, Access::kDefaultFactory));
  check_status(PyObject_SetAttrString(copy.get(), "default_factory", lifted.get()));
}

}  // namespace alternator::lift
