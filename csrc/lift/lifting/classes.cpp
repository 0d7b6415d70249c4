// Attributes of classes, writes to them, and the classes that a trace makes.
#include "lift/lifting/classes.h"

#include "cpython/objects.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/lifter.h"

namespace alternator::lift {

static bool is_fixed(PyTypeObject* type) { return (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0; }
static Borrowed object_of(PyTypeObject* type) { return reinterpret_cast<PyObject*>(type); }

// --- classes of the trace -------------------------------------------------------------------------------

// A class still under construction (its __init_subclass__ or mro() runs) is recognized by its bases: one of them is of
// the trace, or did not list it as a subclass before.
bool Classes::is_unfinished(Borrowed cls) const {
  if (!lifter_.has_made() && subclasses_before_.empty()) return false;
  PyObject* bases = cls.as<PyTypeObject>()->tp_bases;
  for (Py_ssize_t i = 0; bases != nullptr && i < PyTuple_GET_SIZE(bases); i++) {
    Borrowed base = PyTuple_GET_ITEM(bases, i);
    if (lifter_.made_here(base)) return true;
    auto before = subclasses_before_.find(base.get());
    if (before != subclasses_before_.end() && before->second.count(cls.get()) == 0) return true;
  }
  return false;
}

// Bypasses an overriding metaclass.
static Ref subclasses_of(Borrowed base) {
  static PyObject* const list_them =
      checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyType_Type), "__subclasses__")).release();
  return checked(PyObject_CallOneArg(list_them, base.get()));
}

void Classes::begin(Borrowed base) {
  if (!PyType_Check(base.get()) || subclasses_before_.count(base.get()) != 0 || lifter_.made_here(base)) return;
  Ref classes = subclasses_of(base);
  std::unordered_set<PyObject*>& before = subclasses_before_[base.get()];
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(classes.get()); i++) before.insert(PyList_GET_ITEM(classes.get(), i));
  lifter_.keep(Ref::share(base));
  lifter_.keep(std::move(classes));
}

bool Classes::existed_before(Borrowed cls) const {
  PyObject* bases = cls.as<PyTypeObject>()->tp_bases;
  for (Py_ssize_t i = 0; bases != nullptr && i < PyTuple_GET_SIZE(bases); i++) {
    auto before = subclasses_before_.find(PyTuple_GET_ITEM(bases, i));
    if (before != subclasses_before_.end() && before->second.count(cls.get()) != 0) return true;
  }
  return false;
}

void Classes::finish(Borrowed cls) {
  lifter_.note_made_here(cls);
  auto* type = cls.as<PyTypeObject>();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_bases); i++) {
    Borrowed base = PyTuple_GET_ITEM(type->tp_bases, i);
    auto* base_type = base.as<PyTypeObject>();
    if (is_fixed(base_type) || lifter_.made_here(base)) continue;
    lifter_.guard(lifter_.tree().child(lifter_.constant(base), Access::kMro), GuardKind::kIs, base_type->tp_mro);
    // No other code may see a class of the trace through __subclasses__(). If the base changes now, its guards fail.
    cpython::forget_subclass(base_type, type);
  }
  use_special_methods(type);
}

// A trace may end while a class is under construction.
void Classes::forget_unfinished() const {
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

Source* Classes::attribute_source(PyTypeObject* type, Borrowed name) {
  if (lifter_.made_here(object_of(type))) {
    PyTypeObject* cls = definer(type, name);
    if (cls == nullptr || lifter_.made_here(object_of(cls))) return nullptr;
    Source* own = lifter_.tree().child(lifter_.constant(object_of(cls)), Access::kDict);
    return lifter_.tree().child(own, Access::kItem, lifter_.intern_key(name));
  }
  return preexisting_fact(type, name).source;
}

// Pre-existing classes do not change during a trace, so lookups are cached.
Classes::TypeFact& Classes::preexisting_fact(PyTypeObject* type, Borrowed name) {
  Ref key = lifter_.intern_key(name);
  TypeFact& fact = facts_[{reinterpret_cast<PyObject*>(type), key.get()}];
  if (fact.source == nullptr) {
    fact.source = lifter_.tree().child(lifter_.constant(object_of(type)), Access::kTypeAttribute, key);
    lifter_.keep(std::move(key));
  }
  return fact;
}

void Classes::store(PyTypeObject* type, Borrowed name, Ref value, bool writes) {
  Ref key = lifter_.intern_key(name);
  const VariableKey variable{reinterpret_cast<PyObject*>(type), key.get()};
  auto [entry, added] = variables_.try_emplace(variable);
  if (added) {
    written_.push_back(variable);
    lifter_.keep(Ref::share(reinterpret_cast<PyObject*>(type)));
  }
  if (entry->second.value) lifter_.keep(Ref(entry->second.value));  // it may be in use
  entry->second = {std::move(value), writes};
  lifter_.keep(std::move(key));
}

const Variable* Classes::class_variable(PyTypeObject* type, Borrowed name) {
  if (written_.empty()) return nullptr;
  auto found = variables_.find({reinterpret_cast<PyObject*>(type), lifter_.intern_key(name).get()});
  return found != variables_.end() ? &found->second : nullptr;
}

void Classes::add_writes(std::vector<VariableWrite>& writes) const {
  for (const VariableKey& key : written_) {
    const Variable& variable = variables_.at(key);
    if (!variable.written) continue;
    writes.push_back({VariableKind::kTypeAttribute, lifter_.constant(key.owner), Ref::share(key.name), variable.value});
  }
}

bool Classes::find_written(PyTypeObject* type, Borrowed name, PyObject** value) {
  if (written_.empty()) return false;
  std::vector<PyTypeObject*> without;
  const Variable* found = nullptr;
  for (Py_ssize_t i = 0; i < order_size(type); i++) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    const Variable* variable = class_variable(base, name);
    if (found == nullptr && variable != nullptr) {
      found = variable;
      if (found->value) break;
      continue;
    }
    const bool has = variable != nullptr ? static_cast<bool>(variable->value)
                                         : PyDict_GetItemWithError(cpython::own_dict(base), name.get()) != nullptr;
    if (found != nullptr && has) throw CannotLift("a class attribute behind one that was deleted");
    if (found == nullptr && has) return false;
    if (found == nullptr) without.push_back(base);
  }
  if (found == nullptr) return false;
  for (PyTypeObject* base : without) {
    Borrowed cls = reinterpret_cast<PyObject*>(base);
    if (!is_fixed(base) && !lifter_.made_here(cls))
      lifter_.guard(lifter_.tree().child(lifter_.constant(cls), Access::kDict), GuardKind::kLacksKey, name);
  }
  *value = found->value.get();
  return true;
}

PyObject* Classes::attribute(PyTypeObject* type, Borrowed name) {
  const SavedError raised;  // _PyType_Lookup clears an exception that is already set
  if (PyObject* written = nullptr; find_written(type, name, &written)) return written;
  PyObject* value = _PyType_Lookup(type, name.get());
  if (is_fixed(type)) return value;
  if (lifter_.made_here(object_of(type))) {
    guard_inherited(type, name);
    return value;
  }
  TypeFact& fact = preexisting_fact(type, name);
  if (std::exchange(fact.guarded, true)) return value;
  if (value == nullptr) {
    lifter_.guard(fact.source, GuardKind::kAbsent);
  } else if (Py_TYPE(value)->tp_descr_get != nullptr || PyCallable_Check(value)) {
    lifter_.guard(fact.source, GuardKind::kIs, value);
  }
  return value;
}

// What a class of the trace inherits from pre-existing bases: a guard on each base that lacks the name, and on the one
// that has it.
void Classes::guard_inherited(PyTypeObject* type, Borrowed name) {
  for (Py_ssize_t i = 0; i < order_size(type); i++) {
    auto* cls = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    Borrowed value = PyDict_GetItemWithError(cpython::own_dict(cls), name.get());
    if (!value && PyErr_Occurred()) throw PyError();
    if (is_fixed(cls) || lifter_.made_here(object_of(cls))) {
      if (value) return;
      continue;
    }
    Source* own = lifter_.tree().child(lifter_.constant(object_of(cls)), Access::kDict);
    Ref key = lifter_.intern_key(name);
    if (!value) {
      lifter_.guard(own, GuardKind::kLacksKey, key);
      continue;
    }
    if (value.type()->tp_descr_get != nullptr || PyCallable_Check(value.get())) {
      lifter_.guard(lifter_.tree().child(own, Access::kItem, key), GuardKind::kIs, value);
    } else {
      lifter_.guard(own, GuardKind::kHasKey, key);
    }
    return;
  }
}

void Classes::guard_names(PyTypeObject* type) {
  if (is_fixed(type) || lifter_.made_here(object_of(type))) return;
  Source* source = lifter_.constant(object_of(type));
  lifter_.guard(lifter_.tree().child(source, Access::kDict), GuardKind::kKeys,
                checked(PySequence_Tuple(cpython::own_dict(type))));
  lifter_.guard(lifter_.tree().child(source, Access::kMro), GuardKind::kIs, type->tp_mro);
}

Ref Classes::dict(PyTypeObject* type) {
  Borrowed dict = cpython::own_dict(type);
  if (is_fixed(type) || lifter_.made_here(object_of(type))) return Ref::share(dict);
  if (has_writes()) throw CannotLift("the __dict__ of a class after a write to one");
  if (Borrowed seen = lifter_.lifted(dict)) return Ref::share(seen);
  Shadow& shadow = lifter_.shadow_dict(dict, lifter_.tree().child(lifter_.constant(object_of(type)), Access::kDict));
  lifter_.containers->lift_whole(shadow);
  return shadow.copy;
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

bool Classes::use_special_methods(PyTypeObject* type) {
  if (is_fixed(type) || type->tp_mro == nullptr) return true;
  if (!special_.insert(type).second) return unsafe_.count(type) == 0;
  if (lifter_.made_here(object_of(type))) {
    for (Py_ssize_t i = 1; i < order_size(type); i++) {
      auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
      if (!lifter_.made_here(object_of(base)) && !use_special_methods(base)) unsafe_.insert(type);
    }
    return unsafe_.count(type) == 0;
  }
  Ref methods = special_methods(type);
  PyObject *name, *method;
  for (Py_ssize_t position = 0; PyDict_Next(methods.get(), &position, &name, &method);) {
    if (is_object_as_method(method)) unsafe_.insert(type);
  }
  lifter_.guard(lifter_.constant(object_of(type)), GuardKind::kSpecialMethods, methods);
  return unsafe_.count(type) == 0;
}

}  // namespace alternator::lift
