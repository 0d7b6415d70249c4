// Private views of instance dicts and of modules' dicts.
#include "lift/lifting/namespaces.h"

#include "cpython/objects.h"
#include "cpython/thread_locals.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/fields.h"
#include "lift/lifting/lifter.h"

#include <structmember.h>

namespace alternator::lift {

Shadow* Namespaces::attributes(Borrowed instance) {
  Known* k = lifter_.known(instance);
  if (k == nullptr) return nullptr;
  if (!PyModule_Check(instance.get())) lifter_.note_read(instance);
  if (k->attributes != nullptr) return k->attributes;
  if (PyModule_Check(instance.get())) {
    k->attributes = &of_globals(PyModule_GetDict(instance.get()));
    return k->attributes;
  }
  PyObject* own = nullptr;
  if (cpython::is_thread_local(instance.type())) {
    own = cpython::thread_dict(k->original.get());
  } else {
    PyObject** slot = _PyObject_GetDictPtr(k->original.get());
    if (slot == nullptr) return nullptr;
    own = *slot;
  }
  // An instance without a dict gets an empty one in the trace's view only.
  Ref dict = own != nullptr ? Ref::share(own) : checked(PyDict_New());
  Source* source = lifter_.tree().child(k->source, Access::kDict);
  // The dict itself may have been lifted before, or belong to another instance too.
  if (Borrowed seen = lifter_.lifted(dict)) {
    if (Known* shared = lifter_.known(seen); shared != nullptr && shared->shadow != nullptr) {
      lifter_.guard_same(source, shared->source);
      k->attributes = shared->shadow;
      return k->attributes;
    }
  }
  Shadow& shadow = lifter_.shadow_dict(dict, source);
  shadow.owner = Ref(k->original);
  k->attributes = &shadow;
  return &shadow;
}

Shadow& Namespaces::of_globals(Borrowed dict) {
  if (auto found = globals_.find(dict.get()); found != globals_.end()) return *found->second;
  // Code that the program executes in a dict of its choice uses the private copy of it.
  if (Known* k = lifter_.known(dict); k != nullptr && k->shadow != nullptr) return *(globals_[dict.get()] = k->shadow);
  if (!PyDict_CheckExact(dict.get())) throw CannotLift("globals that are not a plain dict");
  // The dict itself may have been lifted before.
  if (Borrowed seen = lifter_.lifted(dict)) {
    Known* handed = lifter_.known(seen);
    lifter_.guard(handed->source, GuardKind::kIs, dict);
    handed->shadow->is_namespace = true;
    return *(globals_[dict.get()] = handed->shadow);
  }
  Shadow& shadow = lifter_.shadow_dict(dict, lifter_.constant(dict));
  shadow.is_namespace = true;
  globals_[dict.get()] = &shadow;
  return shadow;
}

bool Namespaces::is_globals(Borrowed dict) const {
  auto found = globals_.find(dict.get());
  return found != globals_.end() && Borrowed(found->second->original) == dict;
}

Borrowed Namespaces::peek(Borrowed dict, Borrowed name) const {
  auto found = globals_.find(dict.get());
  const bool is_copied = found != globals_.end();
  return PyDict_GetItemWithError(is_copied ? found->second->copy.get() : dict.get(), name.get());
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

void Namespaces::lift_attributes(Borrowed original, Borrowed copy, Source* source) {
  for (const auto& [name, slot] : slots_of(original.type())) {
    Ref value = lifter_.fields->load(copy, name, slot);
    if (!value) continue;
    lifter_.escape(value);
    check_status(slot.type()->tp_descr_set(slot.get(), copy.get(), value.get()));
  }
  PyObject** theirs = _PyObject_GetDictPtr(original.get());
  PyObject** ours = _PyObject_GetDictPtr(copy.get());
  if (theirs == nullptr || ours == nullptr) return;
  Ref dict = *theirs != nullptr ? Ref::share(*theirs) : checked(PyDict_New());
  Source* dict_source = lifter_.tree().child(source, Access::kDict);
  Shadow* shadow = nullptr;
  // The dict itself may have been lifted before, or belong to another object too.
  if (Borrowed seen = lifter_.lifted(dict)) {
    const Known* shared = lifter_.known(seen);
    if (shared == nullptr || shared->shadow == nullptr) throw CannotLift("a __dict__ that is something else too");
    lifter_.guard_same(dict_source, shared->source);
    shadow = shared->shadow;
  } else {
    shadow = &lifter_.shadow_dict(dict, dict_source);
    shadow->owner = Ref::share(original);
  }
  lifter_.known_as(copy).attributes = shadow;
  lifter_.containers->lift_whole(*shadow);
  Py_XDECREF(std::exchange(*ours, Py_NewRef(shadow->copy.get())));
}

void Namespaces::open_attributes(Borrowed container) {
  Known* k = lifter_.known(container);
  if (k == nullptr || k->attributes != nullptr) return;
  // The copy of a partial has a __dict__ if the partial has one.
  const bool has_more = container.type() == &PyODict_Type
                            ? k->shadow != nullptr
                            : container.type() == known_types().partial && *_PyObject_GetDictPtr(container.get());
  if (has_more) lift_attributes(Ref(k->original), container, k->source);
}

}  // namespace alternator::lift
