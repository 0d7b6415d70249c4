// The core of lifting: which objects are known, and the values that lift to themselves.
#include "lift/lifting/lifter.h"

#include "lift/lifting/cells.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/decimal_contexts.h"
#include "lift/lifting/fields.h"
#include "lift/lifting/functions.h"
#include "lift/lifting/immutable_values.h"
#include "lift/lifting/iterators.h"
#include "lift/lifting/lazy_objects.h"
#include "lift/lifting/lift_mutants.h"
#include "lift/lifting/lift_rows.h"
#include "lift/lifting/namespaces.h"
#include "lift/lifting/numpy_scalar_inputs.h"
#include "lift/lifting/plain_origins.h"
#include "lift/lifting/symbolic_inputs.h"
#include "lift/lifting/unspecialized.h"
#include "lift/lifting/write_log.h"
#include "lift/sources/decimal_values.h"

namespace alternator::lift {

Lifter::Lifter(SourceTree& tree, fake::Session& session)
    : containers(std::make_unique<Containers>(*this)),
      lazy(std::make_unique<LazyValues>(*this)),
      namespaces(std::make_unique<Namespaces>(*this)),
      cells(std::make_unique<Cells>(*this)),
      fields(std::make_unique<Fields>(*this)),
      iterators(std::make_unique<Iterators>(*this)),
      classes(std::make_unique<Classes>(*this)),
      functions(std::make_unique<Functions>(*this)),
      origins(std::make_unique<PlainOrigins>(*this)),
      unspecialized(std::make_unique<Unspecialized>(*this)),
      symbolic(std::make_unique<SymbolicInputs>(*this)),
      decimals(std::make_unique<DecimalContexts>(*this)),
      write_log(std::make_unique<WriteLog>(*this)),
      tree_(tree),
      session_(session) {}

Lifter::~Lifter() { classes->forget_unfinished(); }

// --- known objects ----------------------------------------------------------------------------------------

PyObject* Lifter::keep(Ref object) {
  kept_.push_back(std::move(object));
  return kept_.back().get();
}

Known& Lifter::known_as(Borrowed lifted) {
  Known*& known = known_[lifted.get()];
  if (known == nullptr) known = &all_known_.emplace_back(KnownObject{lifted.get(), {}}).known;
  return *known;
}

Known& Lifter::know(Borrowed lifted, Borrowed original, Source* source) {
  Known& known = known_as(lifted);
  known.source = source;
  known.original = Ref::share(original);
  return known;
}

Ref Lifter::remember(Borrowed original, Ref lifted, Source* source) {
  know(lifted, original, source);
  lifted_[original.get()] = lifted.get();
  keep(Ref::share(original));
  keep(Ref(lifted));
  return lifted;
}

Ref Lifter::lift_itself(Borrowed object, Source* source, bool instance, bool opaque) {
  Ref lifted = remember(object, Ref::share(object), source);
  Known& known = known_as(object);
  known.instance = instance;
  known.opaque = opaque;
  return lifted;
}

Shadow& Lifter::shadow_dict(Borrowed dict, Source* source) {
  Ref copy = checked(PyDict_Copy(dict.get()));
  Shadow& shadow = containers->add(ShadowKind::kDict, dict, copy, source);
  know(copy, dict, source).shadow = &shadow;
  lifted_[dict.get()] = keep(std::move(copy));
  return shadow;
}

void Lifter::note_tensor(Borrowed fake, Source* source) { tensors_.emplace_back(Ref::share(fake), source); }

void Lifter::note_constant(Borrowed object) {
  if (constants_.insert(object.get()).second) keep(Ref::share(object));
}

bool Lifter::made_here(Borrowed object) const {
  return made_.count(object.get()) != 0 || (PyType_Check(object.get()) && classes->is_unfinished(object));
}

void Lifter::note_made_here(Borrowed object) {
  if (made_.insert(object.get()).second) keep(Ref::share(object));
}

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

// --- guards -----------------------------------------------------------------------------------------------

void Lifter::guard(Source* source, GuardKind kind, Borrowed object, Py_ssize_t number) {
  // The identity and type of a constant cannot change; its contents can.
  if (source->access == Access::kConstant && (kind == GuardKind::kIs || kind == GuardKind::kType)) return;
  Guard guard{kind, Ref::share(object), {}, number};
  tree_.guard(source, std::move(guard));
}

void Lifter::guard_same(Source* source, Source* other) {
  if (source == other) return;
  Guard guard{GuardKind::kSame};
  guard.other = other;
  tree_.guard(source, std::move(guard));
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

// --- lifting ----------------------------------------------------------------------------------------------

void Lifter::escape(Borrowed lifted) {
  if (lazy->has_open()) lazy->close(lifted);
  if (Known* k = known(lifted); k != nullptr && k->shadow != nullptr) containers->lift_whole(*k->shadow);
}

// A default argument of a function that is guarded by identity.
static bool is_default(const Source& source) {
  return source.parent != nullptr && source.parent->access == Access::kDefaults;
}

Ref Lifter::lift(Borrowed value, Source* source) {
  if (is_switched_off(value)) return Ref::share(value);
  if (value.get() == withheld_.get() && source->access != Access::kMethodSelf)
    throw CannotLift("the list that warnings are recorded in");
  if (only_lasting && source->access != Access::kConstant && !(is_default(*source) && is_plain(value.get())))
    check_lasting(value);
  if (unspecialized->includes(value, *source)) return unspecialized->lift(value, source);
  if (symbolic->dynamism != nullptr) {
    if (Ref number = symbolic->number(value, source)) return number;
  }
  bool is_new = false;
  if (Ref number = only_lasting ? Ref() : NumpyScalarInputs::find(value, source, &is_new)) {
    if (is_new) {
      guard_type(source, value);
      know(number, value, source);
    }
    return number;
  }
  const bool may_hold_symbols = PySlice_Check(value.get()) && symbolic->dynamism != nullptr && !only_lasting &&
                                source->access != Access::kConstant;
  if (may_hold_symbols) return lift_slice(*this, value, source);
  if (is_plain(value.get()) && !is_enum_member(value.get()) && !is_nan(value.get())) {
    guard(source, is_singleton(value) ? GuardKind::kIs : GuardKind::kEquals, value);
    origins->note(value, source);
    return Ref::share(value);
  }
  if (is_about_decimals(value.get())) {
    if (decimals->on_use) decimals->on_use();
    if (is_decimal_context(value.get())) return decimals->lift(value, source, true);
  }
  if (Borrowed seen = lifted(value)) {
    guard_same(source, known(seen)->source);
    return Ref::share(seen);
  }
  if (made_here(value) || known(value) != nullptr) return Ref::share(value);  // of this trace: it needs no source
  return lift_by_kind(*this, value, source);
}

}  // namespace alternator::lift
