// Instance dicts, module namespaces, cells, fields, classes.
#include "cpython/objects.h"
#include "cpython/thread_locals.h"
#include "lift/lifting/lifter.h"
#include "lift/sources/decimal_values.h"

#include "lift/lifting/written.h"
#include "lift/sources/plain.h"
#include "py/lasting.h"

#include <algorithm>
#include <cstring>

namespace alternator::lift {

// --- layouts ------------------------------------------------------------------------------------------

// The tp_dealloc of every class made by a class statement (a Python class).
static destructor class_statement_dealloc() {
  static constinit Lasting<destructor> dealloc;
  return dealloc.get([] {
    Ref type = Ref::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "probe"));
    return type ? type.as<PyTypeObject>()->tp_dealloc : nullptr;
  });
}

static bool from_class_statement(PyTypeObject* type) {
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 || type->tp_dealloc != class_statement_dealloc()) return false;
  // C heap types look the same except for the state that they add.
  PyTypeObject* base = type->tp_base;
  Py_ssize_t size = base->tp_basicsize + Py_SIZE(type) * static_cast<Py_ssize_t>(sizeof(PyObject*));
  if (type->tp_dictoffset != 0 && (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) == 0 && base->tp_dictoffset == 0)
    size += sizeof(PyObject*);
  if (type->tp_weaklistoffset != 0 && base->tp_weaklistoffset == 0) size += sizeof(PyObject*);
  return type->tp_basicsize <= size;
}

// The C++ state of such an instance is not part of its tp_basicsize.
static bool is_made_by_pybind(PyTypeObject* type) { return strcmp(Py_TYPE(type)->tp_name, "pybind11_type") == 0; }

// A class made in C that adds nothing to its base: typing.Generic, from 3.12 on.
static bool adds_nothing(PyTypeObject* type) {
  PyTypeObject* base = type->tp_base;
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !is_made_by_pybind(type) &&
         type->tp_basicsize == base->tp_basicsize && type->tp_itemsize == base->tp_itemsize &&
         type->tp_dictoffset == base->tp_dictoffset && type->tp_weaklistoffset == base->tp_weaklistoffset &&
         type->tp_new == base->tp_new && type->tp_init == base->tp_init && type->tp_getattro == base->tp_getattro &&
         type->tp_setattro == base->tp_setattro;
}

PyTypeObject* layout_base(PyTypeObject* type) {
  while (type != nullptr && (from_class_statement(type) || adds_nothing(type))) type = type->tp_base;
  return type;
}

bool has_plain_layout(PyTypeObject* type) {
  PyTypeObject* base = layout_base(type);
  if (base == &PyBaseObject_Type) return true;
  if (base == &PyTuple_Type) return type != base;
  return PyType_IsSubtype(base, reinterpret_cast<PyTypeObject*>(PyExc_BaseException)) != 0;
}

void Lifter::check_lasting(Borrowed value) const {
  PyObject* v = value.get();
  const bool lasting =
      v == nullptr || v == Py_None || PyType_Check(v) || PyFunction_Check(v) || PyModule_Check(v) || PyCode_Check(v) ||
      Py_TYPE(v)->tp_descr_get != nullptr ||
      (PyCFunction_Check(v) && (PyCFunction_GET_SELF(v) == nullptr || PyModule_Check(PyCFunction_GET_SELF(v)))) ||
      (PyCallable_Check(v) && (Py_TYPE(v)->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0);
  if (!lasting) throw CannotLift("what a function with an lru_cache reads besides its arguments");
}

// --- instance dicts and namespaces ----------------------------------------------------------------------

Shadow* Lifter::attributes(Borrowed instance) {
  Known* k = known(instance);
  if (k == nullptr) return nullptr;
  if (!PyModule_Check(instance.get())) note_read(instance);
  if (k->attributes != nullptr) return k->attributes;
  if (PyModule_Check(instance.get())) {
    k->attributes = &name_space(PyModule_GetDict(instance.get()));
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
  Source* source = tree_.child(k->source, Access::kDict);
  // The dict itself may have been lifted before, or belong to another instance too.
  if (auto seen = lifted_.find(dict.get()); seen != lifted_.end()) {
    if (Known* shared = known(seen->second); shared != nullptr && shared->shadow != nullptr) {
      guard_same(source, shared->source);
      k->attributes = shared->shadow;
      return k->attributes;
    }
  }
  Ref copy = checked(PyDict_Copy(dict.get()));
  Shadow& shadow = add_shadow(ShadowKind::kDict, dict, copy, source);
  shadow.owner = Ref(k->original);
  keep(Ref(copy));
  know(copy, dict, source).shadow = &shadow;
  lifted_[dict.get()] = copy.get();
  k->attributes = &shadow;
  return &shadow;
}

Shadow& Lifter::name_space(Borrowed dict) {
  if (auto found = name_spaces_.find(dict.get()); found != name_spaces_.end()) return *found->second;
  // Code that the program executes in a dict of its choice uses the private copy of it.
  if (Known* k = known(dict); k != nullptr && k->shadow != nullptr) return *(name_spaces_[dict.get()] = k->shadow);
  if (!PyDict_CheckExact(dict.get())) throw CannotLift("globals that are not a plain dict");
  // The dict itself may have been lifted before.
  if (auto seen = lifted_.find(dict.get()); seen != lifted_.end()) {
    Known* handed = known(seen->second);
    guard(handed->source, GuardKind::kIs, dict);
    handed->shadow->is_namespace = true;
    return *(name_spaces_[dict.get()] = handed->shadow);
  }
  Ref copy = checked(PyDict_Copy(dict.get()));
  Source* source = constant(dict);
  Shadow& shadow = add_shadow(ShadowKind::kDict, dict, copy, source);
  shadow.is_namespace = true;
  keep(Ref(copy));
  know(copy, dict, source).shadow = &shadow;
  lifted_[dict.get()] = copy.get();
  name_spaces_[dict.get()] = &shadow;
  return shadow;
}

Borrowed Lifter::peek(Borrowed dict, Borrowed name) const {
  auto found = name_spaces_.find(dict.get());
  const bool is_copied = found != name_spaces_.end();
  return PyDict_GetItemWithError(is_copied ? found->second->copy.get() : dict.get(), name.get());
}

// --- cells ------------------------------------------------------------------------------------------------

void Lifter::use_closure(Borrowed function) {
  PyObject* closure = function.as<PyFunctionObject>()->func_closure;
  if (closure == nullptr || made_here(function)) return;
  Known* k = known(function);
  Source* source = k != nullptr ? k->source : constant(function);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(closure); i++) {
    PyObject* cell = PyTuple_GET_ITEM(closure, i);
    (void)use_cell(cell, tree_.child(source, Access::kCell, {}, i));
  }
}

Ref Lifter::use_cell(Borrowed cell, Source* source) {
  auto [entry, added] = cells_.try_emplace(cell.get(), Cell{source});
  if (!added) {
    guard_same(source, entry->second.source);
    return Ref::share(cell);
  }
  source->bears_identity = true;
  return remember(cell, Ref::share(cell), source);
}

Ref Lifter::load_cell(Borrowed cell) {
  Cell& entry = cells_.at(cell.get());
  if (!entry.read && !entry.place.written) {
    Source* source = tree_.child(entry.source, Access::kContents);
    Borrowed contents = PyCell_GET(cell.get());
    Ref lifted;
    if (contents) {
      lifted = lift(contents, source);
    } else {
      guard(source, GuardKind::kAbsent);
    }
    Cell& again = cells_.at(cell.get());
    again.read = true;
    again.place.value = std::move(lifted);
    note_read(again.place.value);
    return again.place.value;
  }
  note_read(entry.place.value);
  return entry.place.value;
}

void Lifter::store_cell(Borrowed cell, Ref value) {
  note_read(cell);
  Cell& entry = cells_.at(cell.get());
  if (!entry.place.written) cell_order_.push_back(cell.get());
  entry.place.written = true;
  entry.place.value = std::move(value);
}

// --- __slots__ and other fields ---------------------------------------------------------------------------

Ref Lifter::load_field(Borrowed instance, Borrowed name, Borrowed descriptor) {
  note_read(instance);
  Ref key = intern_key(name);
  auto found = fields_.find({instance.get(), key.get()});
  if (found != fields_.end()) return found->second.value;
  Known* k = known(instance);
  Source* source = tree_.child(k->source, Access::kField, key);
  Ref value = Ref::steal(descriptor.type()->tp_descr_get(descriptor.get(), k->original.get(),
                                                         reinterpret_cast<PyObject*>(instance.type())));
  Ref lifted;
  if (value) {
    lifted = lift(value, source);
  } else {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw PyError();
    PyErr_Clear();
    guard(source, GuardKind::kAbsent);
  }
  fields_[{instance.get(), key.get()}].value = lifted;
  keep(std::move(key));
  return lifted;
}

void Lifter::store_field(Borrowed instance, Borrowed name, Ref value) {
  note_read(name);
  Ref key = intern_key(name);
  Place& place = fields_[{instance.get(), key.get()}];
  if (!place.written) field_order_.push_back({instance.get(), key.get()});
  place.written = true;
  place.value = std::move(value);
  keep(std::move(key));
}

std::optional<Ref> Lifter::written_field(Borrowed instance, Borrowed name) {
  Ref key = intern_key(name);
  auto found = fields_.find({instance.get(), key.get()});
  if (found == fields_.end() || !found->second.written) return std::nullopt;
  return found->second.value;
}

std::vector<PlaceWrite> Lifter::writes() const {
  std::vector<PlaceWrite> writes;
  for (PyObject* cell : cell_order_) {
    const Cell& entry = cells_.at(cell);
    writes.push_back({PlaceKind::kCell, entry.source, {}, entry.place.value});
  }
  for (const FieldKey& key : field_order_) {
    const Known* owner = known(key.instance);
    writes.push_back({PlaceKind::kField, owner->source, Ref::share(key.name), fields_.at(key).value});
  }
  for (const FieldKey& key : class_order_) {
    if (!class_places_.at(key).written) continue;
    writes.push_back(
        {PlaceKind::kTypeAttribute, tree_.constant(key.instance), Ref::share(key.name), class_places_.at(key).value});
  }
  for (PyObject* iterator : iterator_order_) {
    const Iterator& entry = iterators_.at(iterator);
    writes.push_back({PlaceKind::kIterator, entry.source, {}, checked(PyLong_FromSsize_t(entry.asked))});
  }
  return writes;
}

// --- iterators ----------------------------------------------------------------------------------------------

Ref Lifter::next_of(Borrowed iterator) {
  auto found = iterators_.find(iterator.get());
  if (found == iterators_.end()) {
    Source* source = known(iterator)->source;
    Source* reduced = tree_.child(source, Access::kReduced);
    // (iter, (iterable,), position); an exhausted one has no position. From 3.12 on a range iterator gives the
    // remaining range, and its position is None.
    Ref state = checked(PyObject_CallMethod(iterator.get(), "__reduce__", nullptr));
    if (!PyTuple_CheckExact(state.get()) || PyTuple_GET_SIZE(state.get()) != 3)
      throw CannotLift("an exhausted iterator");
    guard(reduced, GuardKind::kLength, {}, 3);
    Ref through = lift(PyTuple_GET_ITEM(PyTuple_GET_ITEM(state.get(), 1), 0),
                       tree_.child(tree_.child(reduced, Access::kIndex, {}, 1), Access::kIndex, {}, 0));
    Ref position = lift(PyTuple_GET_ITEM(state.get(), 2), tree_.child(reduced, Access::kIndex, {}, 2));
    Ref copy = checked(PyObject_GetIter(through.get()));
    if (position.get() != Py_None)
      checked(PyObject_CallMethod(copy.get(), "__setstate__", "O", position.get())).reset();
    found = iterators_.emplace(iterator.get(), Iterator{source, std::move(copy)}).first;
    iterator_order_.push_back(iterator.get());
  }
  found->second.asked++;
  Ref value = Ref::steal(PyIter_Next(found->second.copy.get()));
  if (!value && PyErr_Occurred()) throw PyError();
  return value;
}

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

bool Lifter::has_writes() const {
  if (!cell_order_.empty() || !field_order_.empty() || !class_order_.empty() || !effects_.empty() ||
      !iterator_order_.empty()) {
    return true;
  }
  return std::ranges::any_of(shadows_, is_written);
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

Lifter::WriteMark Lifter::mark_writes() const {
  WriteMark mark{effects_.size(), writes(), {}, {}};
  for (const Shadow& shadow : shadows_) mark.shadows.push_back(difference(shadow));
  for (const DecimalContext& context : decimal_contexts_) mark.decimals.push_back(parts_of_context(context.copy));
  return mark;
}

bool Lifter::has_writes_since(const WriteMark& mark) const {
  const std::vector<PlaceWrite> places = writes();
  if (effects_.size() != mark.effects || places.size() != mark.places.size()) return true;
  for (size_t i = 0; i < places.size(); i++) {
    const PlaceWrite &now = places[i], &before = mark.places[i];
    if (now.owner != before.owner || now.name.get() != before.name.get()) return true;
    const bool same = now.kind == PlaceKind::kIterator ? plain_equal(now.value.get(), before.value.get())
                                                       : now.value.get() == before.value.get();
    if (!same) return true;
  }
  auto same = [](const Ref& a, const Ref& b) { return a.get() == b.get(); };
  for (size_t i = 0; i < shadows_.size(); i++) {
    const std::vector<Ref> changes = difference(shadows_[i]);
    const std::vector<Ref> before = i < mark.shadows.size() ? mark.shadows[i] : std::vector<Ref>();
    if (!std::ranges::equal(changes, before, same)) return true;
  }
  for (size_t i = 0; i < decimal_contexts_.size(); i++) {
    const Ref& before = i < mark.decimals.size() ? mark.decimals[i] : decimal_contexts_[i].before;
    if (!plain_equal(parts_of_context(decimal_contexts_[i].copy).get(), before.get())) return true;
  }
  return false;
}

// --- functions ----------------------------------------------------------------------------------------------

void Lifter::use_defaults(PyFunctionObject* function, PyObject** slots) {
  Borrowed f = function;
  if (made_here(f) || (function->func_defaults == nullptr && function->func_kwdefaults == nullptr)) return;
  const Known* k = known(f);
  Source* source = k != nullptr ? k->source : constant(f);
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  auto replace = [&](int slot, PyObject* value, Source* value_source) {
    // The caller may have passed the very object that is the default; lifting it twice is harmless.
    if (slots[slot] != value || known(value) != nullptr) return;
    Ref lifted = lift(value, value_source);
    Py_DECREF(std::exchange(slots[slot], lifted.release()));
  };
  if (PyObject* defaults = function->func_defaults) {
    Source* tuple = tree_.child(source, Access::kDefaults);
    const Py_ssize_t count = PyTuple_GET_SIZE(defaults);
    guard(tuple, GuardKind::kLength, {}, count);
    for (Py_ssize_t i = 0; i < count; i++) {
      replace(code->co_argcount - static_cast<int>(count - i), PyTuple_GET_ITEM(defaults, i),
              tree_.child(tuple, Access::kIndex, {}, i));
    }
  } else {
    guard(tree_.child(source, Access::kDefaults), GuardKind::kAbsent);
  }
  if (PyObject* defaults = function->func_kwdefaults) {
    Source* dict = tree_.child(source, Access::kKeywordDefaults);
    for (int i = 0; i < code->co_kwonlyargcount; i++) {
      PyObject* name = PyTuple_GET_ITEM(PyCode_GetVarnames(code), code->co_argcount + i);
      PyObject* value = PyDict_GetItemWithError(defaults, name);
      if (value != nullptr) replace(code->co_argcount + i, value, tree_.child(dict, Access::kItem, name));
    }
  }
}

void Lifter::guard_defaults() {
  std::vector<std::pair<PyFunctionObject*, Source*>> functions;
  for (const auto& [object, known] : all_known_) {
    if (PyFunction_Check(object) && known.source != nullptr && defaults_guarded_.insert(object).second)
      functions.emplace_back(reinterpret_cast<PyFunctionObject*>(object), known.source);
  }
  const std::vector<PyTypeObject*> types(special_.begin(), special_.end());
  for (PyTypeObject* type : types) {  // native code calls these unlifted
    if (made_here(Borrowed(reinterpret_cast<PyObject*>(type)))) continue;
    Ref methods = special_methods(type);
    PyObject *name, *method;
    for (Py_ssize_t position = 0; PyDict_Next(methods.get(), &position, &name, &method);) {
      if (PyFunction_Check(method) && defaults_guarded_.insert(method).second)
        functions.emplace_back(reinterpret_cast<PyFunctionObject*>(method), constant(method));
    }
  }
  for (const auto& [function, source] : functions) {
    Source* positional = tree_.child(source, Access::kDefaults);
    if (PyObject* defaults = function->func_defaults) {
      guard(positional, GuardKind::kLength, {}, PyTuple_GET_SIZE(defaults));
    } else {
      guard(positional, GuardKind::kAbsent);
    }
    auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
    if (code->co_kwonlyargcount == 0) continue;
    Source* named = tree_.child(source, Access::kKeywordDefaults);
    if (function->func_kwdefaults == nullptr) {
      guard(named, GuardKind::kAbsent);
      continue;
    }
    Ref names = checked(PyCode_GetVarnames(code));
    for (int i = 0; i < code->co_kwonlyargcount; i++) {
      PyObject* name = PyTuple_GET_ITEM(names.get(), code->co_argcount + i);
      const bool has = contains(function->func_kwdefaults, name).value();
      guard(named, has ? GuardKind::kHasKey : GuardKind::kLacksKey, name);
    }
  }
}

static void add_constants(PyObject* tuple, PointerSet<PyObject>& constants) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
    PyObject* constant = PyTuple_GET_ITEM(tuple, i);
    if (constants.insert(constant).second && PyTuple_Check(constant)) add_constants(constant, constants);
  }
}

void Lifter::note_code(Borrowed code) {
  if (!codes_.insert(code.get()).second) return;
  keep(Ref::share(code));
  add_constants(code.as<PyCodeObject>()->co_consts, code_constants_);
}

bool Lifter::is_code_constant(Borrowed object) { return code_constants_.count(object.get()) != 0; }

}  // namespace alternator::lift
