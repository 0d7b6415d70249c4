// Lazy objects, and containers whose slots are lifted when they are read.
#include "lift/lifting/lazy_objects.h"

#include "lift/lifting/layouts.h"
#include "lift/lifting/lift_mutants.h"
#include "lift/lifting/lifter.h"
#include "lift/lifting/symbolic_inputs.h"

namespace alternator::lift {

// Larger tuples are lifted whole: programs do not unpack these.
static constexpr Py_ssize_t kMostOpen = 64;

static void lazy_dealloc(PyObject* self) {
  Py_XDECREF(reinterpret_cast<LazyObject*>(self)->value);
  PyObject_Free(self);
}

PyTypeObject lazy_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

int init_lazy() {
  lazy_type.tp_name = "alternator.Unread";
  lazy_type.tp_basicsize = sizeof(LazyObject);
  lazy_type.tp_dealloc = lazy_dealloc;
  lazy_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  return PyType_Ready(&lazy_type);
}

Ref LazyValues::make(Borrowed value, Source* source) {
  auto* lazy = PyObject_New(LazyObject, &lazy_type);
  if (lazy == nullptr) throw PyError();
  lazy->value = Py_NewRef(value.get());
  lazy->source = source;
  lazy->lifted = nullptr;
  Ref made = Ref::steal(reinterpret_cast<PyObject*>(lazy));
  know(made, value, source);
  return made;
}

void LazyValues::know(Borrowed stand_in, Borrowed value, Source* source) {
  lifter_.know(stand_in, value, source);
  lifter_.keep(Ref::share(stand_in));
}

PyObject* LazyValues::read(Borrowed stand_in) {
  auto* lazy = stand_in.as<LazyObject>();
  if (lazy->lifted == nullptr) lazy->lifted = lifter_.keep(lift_open(lazy->value, lazy->source));
  return lazy->lifted;
}

// Values that always lift to themselves: a tuple of such values does, too.
static bool lifts_to_itself(PyObject* value, int depth = 0) {
  constexpr int kDeepest = 8;
  if (is_plain(value) || PyType_Check(value) || PyFunction_Check(value) || PyModule_Check(value)) return true;
  if (!PyTuple_CheckExact(value)) {
    PyTypeObject* type = Py_TYPE(value);
    return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && layout_base(type) == &PyBaseObject_Type &&
           has_plain_layout(type);
  }
  if (depth == kDeepest) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) {
    if (!lifts_to_itself(PyTuple_GET_ITEM(value, i), depth + 1)) return false;
  }
  return true;
}

Ref LazyValues::lift_open(Borrowed value, Source* source) {
  if (!PyTuple_CheckExact(value.get()) || lifter_.only_lasting || lifter_.made_here(value) ||
      lifter_.is_lifted(value.get()) || lifter_.known(value) != nullptr || is_switched_off(value)) {
    return lifter_.lift(value, source);
  }
  const Py_ssize_t count = PyTuple_GET_SIZE(value.get());
  if (count == 0 || count > kMostOpen) return lifter_.lift(value, source);
  lifter_.guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(&PyTuple_Type));
  source->bears_identity = true;
  Ref view = Ref::share(value);
  if (!lifts_to_itself(value.get()) || lifter_.symbolic->will_hold_numbers(value, source)) {
    view = checked(PyTuple_New(count));
    for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(view.get(), i, Py_NewRef(PyTuple_GET_ITEM(value.get(), i)));
  }
  Ref lifted = lifter_.remember(value, std::move(view), source);
  open_[lifted.get()] = {source, std::vector<bool>(static_cast<size_t>(count), false)};
  return lifted;
}

static PyObject** slots_of(Borrowed container) {
  if (PyTuple_CheckExact(container.get())) return &PyTuple_GET_ITEM(container.get(), 0);
  return PyList_CheckExact(container.get()) ? container.as<PyListObject>()->ob_item : nullptr;
}

static void put(PyObject** slot, Borrowed value) {
  if (*slot == value.get()) return;
  Py_DECREF(std::exchange(*slot, Py_NewRef(value.get())));
}

void LazyValues::read_slot(Borrowed container, Open& open, Py_ssize_t index) {
  PyObject** slot = slots_of(container) + index;
  if (open.source == nullptr) {
    if (is_lazy(*slot)) put(slot, read(*slot));
    return;
  }
  const auto at = static_cast<size_t>(index);
  if (open.read[at]) return;
  const Ref original = Ref::share(*slot);
  Ref lifted = lift_open(original, lifter_.tree().child(open.source, Access::kIndex, {}, index));
  const bool is_copy = Borrowed(lifter_.known(container)->original) != container;
  if (!is_copy && lifted.get() != original.get()) throw CannotLift("a tuple that needs a private copy");
  open.read[at] = true;
  put(slot, lifted);
}

Ref LazyValues::open_item(Borrowed container, Py_ssize_t index) {
  Open& open = open_.at(container.get());
  const Py_ssize_t count = Py_SIZE(container.get());
  if (index < 0) {
    guard_open_length(container);
    index += count;
  }
  if (index < 0 || index >= count) return {};
  read_slot(container, open, index);
  return Ref::share(slots_of(container)[index]);
}

void LazyValues::guard_open_length(Borrowed container) {
  const Open& open = open_.at(container.get());
  if (open.source != nullptr) lifter_.guard(open.source, GuardKind::kLength, {}, Py_SIZE(container.get()));
}

void LazyValues::guard_open_truth(Borrowed container) {
  const Open& open = open_.at(container.get());
  if (open.source != nullptr) lifter_.guard(open.source, GuardKind::kTruth, {}, Py_SIZE(container.get()) > 0 ? 1 : 0);
}

bool LazyValues::is_partly_read(Borrowed value) const {
  if (is_lazy(value.get()) || is_open(value)) return true;
  const Known* k = lifter_.known(value);
  return k != nullptr && k->shadow != nullptr && !k->shadow->whole;
}

void LazyValues::note_open(Borrowed made) { open_[made.get()] = {nullptr, {}}; }

void LazyValues::close(Borrowed container) {
  auto found = open_.find(container.get());
  if (found == open_.end()) return;
  Open open = std::move(found->second);
  open_.erase(found);  // it may contain itself
  // The container at this address may have died, and another may have it now.
  if (slots_of(container) == nullptr) return;
  if (open.source != nullptr) lifter_.guard(open.source, GuardKind::kLength, {}, Py_SIZE(container.get()));
  for (Py_ssize_t i = 0; i < Py_SIZE(container.get()); i++) {
    read_slot(container, open, i);
    lifter_.escape(slots_of(container)[i]);
  }
}

}  // namespace alternator::lift
