// Facts about classes, and the classes that a trace makes.
#include "lift/lifting/lifter.h"

#include "cpython/objects.h"

namespace alternator::lift {

static bool is_fixed(PyTypeObject* type) { return (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0; }
static Borrowed object_of(PyTypeObject* type) { return reinterpret_cast<PyObject*>(type); }

// --- classes of the trace -------------------------------------------------------------------------------

// A class still under construction (its __init_subclass__ or mro() runs) is recognized by its bases: one of them is of
// the trace, or did not list it as a subclass before.
bool Lifter::made_here(Borrowed object) const {
  if (made_.count(object.get()) != 0) return true;
  if (!PyType_Check(object.get()) || (made_.empty() && subclasses_before_.empty())) return false;
  PyObject* bases = object.as<PyTypeObject>()->tp_bases;
  for (Py_ssize_t i = 0; bases != nullptr && i < PyTuple_GET_SIZE(bases); i++) {
    Borrowed base = PyTuple_GET_ITEM(bases, i);
    if (made_here(base)) return true;
    auto before = subclasses_before_.find(base.get());
    if (before != subclasses_before_.end() && before->second.count(object.get()) == 0) return true;
  }
  return false;
}

void Lifter::note_made_here(Borrowed object) {
  if (made_.insert(object.get()).second) keep(Ref::share(object));
}

// Bypasses an overriding metaclass.
static Ref subclasses_of(Borrowed base) {
  static PyObject* const list_them =
      checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyType_Type), "__subclasses__")).release();
  return checked(PyObject_CallOneArg(list_them, base.get()));
}

void Lifter::begin_class(Borrowed base) {
  if (!PyType_Check(base.get()) || subclasses_before_.count(base.get()) != 0 || made_here(base)) return;
  Ref classes = subclasses_of(base);
  std::unordered_set<PyObject*>& before = subclasses_before_[base.get()];
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(classes.get()); i++) before.insert(PyList_GET_ITEM(classes.get(), i));
  keep(Ref::share(base));
  keep(std::move(classes));
}

bool Lifter::existed_before(Borrowed cls) const {
  PyObject* bases = cls.as<PyTypeObject>()->tp_bases;
  for (Py_ssize_t i = 0; bases != nullptr && i < PyTuple_GET_SIZE(bases); i++) {
    auto before = subclasses_before_.find(PyTuple_GET_ITEM(bases, i));
    if (before != subclasses_before_.end() && before->second.count(cls.get()) != 0) return true;
  }
  return false;
}

void Lifter::finish_class(Borrowed cls) {
  note_made_here(cls);
  auto* type = cls.as<PyTypeObject>();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_bases); i++) {
    Borrowed base = PyTuple_GET_ITEM(type->tp_bases, i);
    auto* base_type = base.as<PyTypeObject>();
    if (is_fixed(base_type) || made_here(base)) continue;
    guard(tree_.child(constant(base), Access::kMro), GuardKind::kIs, base_type->tp_mro);
    // No other code may see a class of the trace through __subclasses__(). If the base changes now, its guards fail.
    cpython::forget_subclass(base_type, type);
  }
  use_special_methods(type);
}

// A trace may end while a class is under construction.
void Lifter::forget_unfinished_classes() const {
  const SavedError outer;
  for (const auto& [base, before] : subclasses_before_) {
    auto* base_type = reinterpret_cast<PyTypeObject*>(base);
    if (is_fixed(base_type)) continue;
    try {
      Ref classes = subclasses_of(base);
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(classes.get()); i++) {
        auto* type = reinterpret_cast<PyTypeObject*>(PyList_GET_ITEM(classes.get(), i));
        if (before.count(reinterpret_cast<PyObject*>(type)) == 0) cpython::forget_subclass(base_type, type);
      }
    } catch (const PyError&) {
      PyErr_Clear();
    }
  }
}

// --- attributes -----------------------------------------------------------------------------------------

// 0 while the class is under construction and its mro() runs.
static Py_ssize_t order_size(PyTypeObject* type) {
  return type->tp_mro == nullptr ? 0 : PyTuple_GET_SIZE(type->tp_mro);
}

// The class whose own dict has the name; null: none.
static PyTypeObject* definer(PyTypeObject* type, Borrowed name) {
  for (Py_ssize_t i = 0; i < order_size(type); i++) {
    auto* cls = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    if (contains(cpython::own_dict(cls), name).value()) return cls;
  }
  return nullptr;
}

Source* Lifter::attribute_source(PyTypeObject* type, Borrowed name) {
  if (made_here(object_of(type))) {
    PyTypeObject* cls = definer(type, name);
    if (cls == nullptr || made_here(object_of(cls))) return nullptr;
    return tree_.child(tree_.child(constant(object_of(cls)), Access::kDict), Access::kItem, intern_key(name));
  }
  return preexisting_fact(type, name).source;
}

// Pre-existing classes do not change during a trace, so lookups are cached.
Lifter::TypeFact& Lifter::preexisting_fact(PyTypeObject* type, Borrowed name) {
  Ref key = intern_key(name);
  TypeFact& fact = type_facts_[{reinterpret_cast<PyObject*>(type), key.get()}];
  if (fact.source == nullptr) {
    fact.source = tree_.child(constant(object_of(type)), Access::kTypeAttribute, key);
    keep(std::move(key));
  }
  return fact;
}

void Lifter::store_class_attribute(PyTypeObject* type, Borrowed name, Ref value, bool writes) {
  Ref key = intern_key(name);
  const FieldKey place{reinterpret_cast<PyObject*>(type), key.get()};
  auto [entry, added] = class_places_.try_emplace(place);
  if (added) {
    class_order_.push_back(place);
    keep(Ref::share(reinterpret_cast<PyObject*>(type)));
  }
  if (entry->second.value) keep(Ref(entry->second.value));  // it may be in use
  entry->second = {std::move(value), writes};
  keep(std::move(key));
}

const Place* Lifter::class_place(PyTypeObject* type, Borrowed name) {
  if (class_order_.empty()) return nullptr;
  auto found = class_places_.find({reinterpret_cast<PyObject*>(type), intern_key(name).get()});
  return found != class_places_.end() ? &found->second : nullptr;
}

bool Lifter::find_written(PyTypeObject* type, Borrowed name, PyObject** value) {
  if (class_order_.empty()) return false;
  std::vector<PyTypeObject*> without;
  const Place* found = nullptr;
  for (Py_ssize_t i = 0; i < order_size(type); i++) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    const Place* place = class_place(base, name);
    if (found == nullptr && place != nullptr) {
      found = place;
      if (found->value) break;
      continue;
    }
    const bool has = place != nullptr ? static_cast<bool>(place->value)
                                      : PyDict_GetItemWithError(cpython::own_dict(base), name.get()) != nullptr;
    if (found != nullptr && has) throw CannotLift("a class attribute behind one that was deleted");
    if (found == nullptr && has) return false;
    if (found == nullptr) without.push_back(base);
  }
  if (found == nullptr) return false;
  for (PyTypeObject* base : without) {
    Borrowed cls = reinterpret_cast<PyObject*>(base);
    if (!is_fixed(base) && !made_here(cls))
      guard(tree_.child(constant(cls), Access::kDict), GuardKind::kLacksKey, name);
  }
  *value = found->value.get();
  return true;
}

PyObject* Lifter::type_attribute(PyTypeObject* type, Borrowed name) {
  const SavedError raised;  // _PyType_Lookup clears an exception that is already set
  if (PyObject* written = nullptr; find_written(type, name, &written)) return written;
  PyObject* value = _PyType_Lookup(type, name.get());
  if (is_fixed(type)) return value;
  if (made_here(object_of(type))) {
    guard_inherited(type, name);
    return value;
  }
  TypeFact& fact = preexisting_fact(type, name);
  if (std::exchange(fact.guarded, true)) return value;
  if (value == nullptr) {
    guard(fact.source, GuardKind::kAbsent);
  } else if (Py_TYPE(value)->tp_descr_get != nullptr || PyCallable_Check(value)) {
    guard(fact.source, GuardKind::kIs, value);
  }
  return value;
}

// What a class of the trace inherits from pre-existing bases: a guard on each base that lacks the name, and on the one
// that has it.
void Lifter::guard_inherited(PyTypeObject* type, Borrowed name) {
  for (Py_ssize_t i = 0; i < order_size(type); i++) {
    auto* cls = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    Borrowed value = PyDict_GetItemWithError(cpython::own_dict(cls), name.get());
    if (!value && PyErr_Occurred()) throw PyError();
    if (is_fixed(cls) || made_here(object_of(cls))) {
      if (value) return;
      continue;
    }
    Source* own = tree_.child(constant(object_of(cls)), Access::kDict);
    Ref key = intern_key(name);
    if (!value) {
      guard(own, GuardKind::kLacksKey, key);
      continue;
    }
    if (value.type()->tp_descr_get != nullptr || PyCallable_Check(value.get())) {
      guard(tree_.child(own, Access::kItem, key), GuardKind::kIs, value);
    } else {
      guard(own, GuardKind::kHasKey, key);
    }
    return;
  }
}

void Lifter::guard_names(PyTypeObject* type) {
  if (is_fixed(type) || made_here(object_of(type))) return;
  Ref keys = checked(PySequence_Tuple(cpython::own_dict(type)));
  guard(tree_.child(constant(object_of(type)), Access::kDict), GuardKind::kKeys, keys);
  guard(tree_.child(constant(object_of(type)), Access::kMro), GuardKind::kIs, type->tp_mro);
}

void Lifter::guard_names(Shadow& shadow) {
  if (!shadow.whole) guard(shadow.source, GuardKind::kKeys, checked(PySequence_Tuple(shadow.original.get())));
}

Ref Lifter::class_dict(PyTypeObject* type) {
  Borrowed dict = cpython::own_dict(type);
  if (is_fixed(type) || made_here(object_of(type))) return Ref::share(dict);
  if (has_class_writes()) throw CannotLift("the __dict__ of a class after a write to one");
  auto seen = lifted_.find(dict.get());
  if (seen != lifted_.end()) return Ref::share(seen->second);
  Source* source = tree_.child(constant(object_of(type)), Access::kDict);
  Ref copy = checked(PyDict_Copy(dict.get()));
  Shadow& shadow = add_shadow(ShadowKind::kDict, dict, copy, source);
  know(copy, dict, source).shadow = &shadow;
  lifted_[dict.get()] = keep(Ref(copy));
  lift_whole(shadow);
  return copy;
}

Ref special_methods(PyTypeObject* type) {
  Ref methods = checked(PyDict_New());
  for (Py_ssize_t i = 0; i < order_size(type); i++) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    PyObject *key, *value;
    for (Py_ssize_t position = 0; PyDict_Next(cpython::own_dict(base), &position, &key, &value);) {
      if (!is_special_method_name(key)) continue;
      if (!contains(methods, key).value()) check_status(PyDict_SetItem(methods.get(), key, value));
    }
  }
  return methods;
}

// An instance of a Python class that defines __call__ or __get__.
static bool is_object_as_method(PyObject* method) {
  PyTypeObject* type = Py_TYPE(method);
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !PyType_Check(method) &&
         (type->tp_call != nullptr || type->tp_descr_get != nullptr);
}

bool Lifter::use_special_methods(PyTypeObject* type) {
  if (is_fixed(type) || type->tp_mro == nullptr) return true;
  if (!special_.insert(type).second) return odd_.count(type) == 0;
  if (made_here(object_of(type))) {
    for (Py_ssize_t i = 1; i < order_size(type); i++) {
      auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
      if (!made_here(object_of(base)) && !use_special_methods(base)) odd_.insert(type);
    }
    return odd_.count(type) == 0;
  }
  Ref methods = special_methods(type);
  PyObject *name, *method;
  for (Py_ssize_t position = 0; PyDict_Next(methods.get(), &position, &name, &method);) {
    if (is_object_as_method(method)) odd_.insert(type);
  }
  guard(constant(object_of(type)), GuardKind::kSpecialMethods, methods);
  return odd_.count(type) == 0;
}

}  // namespace alternator::lift
