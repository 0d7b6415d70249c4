// Pre-existing objects whose finalization is observable: one with a `__del__`, one with a weak reference that has a
// callback, a generator with a pending `finally`. Objects that the program drops stay alive until the compiled part has
// ended, so an instruction that drops the last reference to such an object is executed concretely.
#include "trace/soundness/finalizers.h"
#include "trace/stdlib/output_effects.h"

#include "trace/core/tracer.h"

#include "cpython/dict_words.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/write_log.h"
#include "lift/sources/finalization.h"

#include <algorithm>

namespace alternator::trace {

namespace {

constexpr Py_ssize_t kLarge = 4096;  // larger containers are checked where something is removed from them: see replay

// Visits the contents of a pre-existing container, without calling methods of a subclass.
template <class Each>
void each_part(lift::ShadowKind kind, PyObject* container, Each&& each) {
  switch (kind) {
    case lift::ShadowKind::kList:
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(container); i++) each(PyList_GET_ITEM(container, i));
      return;
    case lift::ShadowKind::kDict: {
      PyObject *key, *value;
      for (Py_ssize_t position = 0; PyDict_Next(container, &position, &key, &value);) each(key), each(value);
      return;
    }
    case lift::ShadowKind::kSet: {
      PyObject* element;
      Py_hash_t hash;
      for (Py_ssize_t position = 0; _PySet_NextEntry(container, &position, &element, &hash) != 0;) each(element);
      return;
    }
    case lift::ShadowKind::kDeque:
      Py_TYPE(container)->tp_traverse(
          container,
          [](PyObject* part, void* to) {
            (*static_cast<Each*>(to))(part);
            return 0;
          },
          &each);
      return;
  }
}

// Null: the copy has no version counter.
const uint64_t* version_word(const lift::Shadow& shadow) {
  return shadow.kind == lift::ShadowKind::kDict ? cpython::dict_version_word(shadow.copy.get()) : nullptr;
}

}  // namespace

bool is_dropped(const lift::Lifter& lifter, Borrowed original) {
  auto is_it = [&](PyObject* part) {
    if (part == original.get()) return true;
    const lift::Known* known = lifter.known(part);
    return known != nullptr && Borrowed(known->original) == original;
  };
  for (const lift::Shadow& shadow : lifter.containers->shadows()) {
    size_t before = 0, after = 0;
    each_part(shadow.kind, shadow.original.get(), [&](PyObject* part) { before += is_it(part) ? 1 : 0; });
    if (before == 0) continue;
    each_part(shadow.kind, shadow.copy.get(), [&](PyObject* part) { after += is_it(part) ? 1 : 0; });
    if (after < before) return true;
  }
  // The previous values of these locations are not available.
  return std::ranges::any_of(lifter.write_log->writes(), [](const lift::VariableWrite& write) {
    return write.kind != lift::VariableKind::kIterator;
  });
}

// While a trace is alive, its private copies hold references to their originals.
static bool is_finalization_observable(const lift::Lifter& lifter, Borrowed object) {
  constexpr Py_ssize_t kTraceReferences = 5;
  return lift::is_finalization_observable(
      object.get(), [&](PyObject* part) { return !lifter.is_lifted(part) && Py_REFCNT(part) > kTraceReferences + 1; });
}

bool is_observably_finalized_in_slot(Borrowed value) {
  // Another slot may refer to it too.
  return lift::is_finalization_observable(
      value.get(), [&](PyObject* part) { return Py_REFCNT(part) > (part == value.get() ? 2 : 1); });
}

bool holds_observably_finalized(Borrowed value) {
  return lift::is_finalization_observable(value.get(), [](PyObject*) { return false; });
}

// To be called before a location that holds `old` is overwritten. Without `place`: in a container, where replay checks
// each element.
void Finalizers::check(Borrowed old, lift::Source* place) {
  if (old && is_finalization_observable(t.lifter, old)) stop(report::Reason::last_reference, old.type()->tp_name);
  if (place == nullptr) return;
  t.tree->guard(place, {old ? lift::GuardKind::kUnobserved : lift::GuardKind::kAbsent});
}

// A value of a suspended frame: the frame's slots may hold the only references.
void Finalizers::watch_slot(Borrowed value) {
  behind_a_break = true;
  if (!is_observably_finalized_in_slot(value)) return;
  const auto same = [&](const Ref& other) { return Borrowed(other) == value; };
  if (std::ranges::none_of(held_in_slots_, same)) held_in_slots_.push_back(Ref::share(value));
  watches = true;
}

// Registers containers that were lifted since the last instruction: an element counts as dropped if the private copy
// does not hold it any more. Module namespaces are excluded: their writes are checked one by one.
void Finalizers::watch_containers() {
  const std::deque<lift::Shadow>& shadows = t.lifter.containers->shadows();
  for (; shadows_seen < shadows.size(); shadows_seen++) {
    const lift::Shadow& shadow = shadows[shadows_seen];
    if (shadow.is_namespace || shadow.length == 0 || shadow.length > kLarge) continue;
    HeldInside held{&shadow, {}, version_word(shadow)};
    each_part(shadow.kind, shadow.original.get(), [&](PyObject* part) {
      if (lift::is_observably_finalized(part)) held.objects.push_back(Ref::share(part));
    });
    if (held.objects.empty()) continue;
    held_inside_.push_back(std::move(held));
    watches = true;
  }
}

PyObject* Finalizers::original_of(PyObject* value) const {
  if (value == nullptr) return nullptr;
  if (Py_IS_TYPE(value, &lazy_type)) return reinterpret_cast<LazyObject*>(value)->value;
  const lift::Known* known = t.lifter.known(value);
  return known != nullptr && known->original ? known->original.get() : value;
}

bool Finalizers::is_in_a_slot(const Position& position, Borrowed wanted) const {
  // The exceptions being handled; those of suspended handlers are on the value stacks.
  for (const _PyErr_StackItem* item = position.ts->exc_info; item != nullptr; item = item->previous_item) {
    if (original_of(item->exc_value) == wanted.get()) return true;
  }
  for (cpython::Frame* frame = position.frame; frame != nullptr && frame != t.output->outermost;
       frame = frame->previous) {
    if (cpython::is_incomplete(frame)) continue;
    PyCodeObject* code = cpython::code_of(frame);
    PyObject** const locals = frame->localsplus;
    PyObject** const end = frame == position.frame ? position.sp : cpython::stack_base(frame);
    for (PyObject** slot = locals; slot < end; slot++) {
      if (original_of(*slot) == wanted.get()) return true;
    }
    if (frame == position.frame) continue;
    // The stack depth of a suspended caller is not known here: only slots whose contents are known to be alive are
    // dereferenced.
    for (PyObject** slot = end; slot < end + code->co_stacksize; slot++) {
      if (*slot == wanted.get()) return true;
      const bool lives = std::ranges::find(stand_ins, *slot) != stand_ins.end();
      if (lives && original_of(*slot) == wanted.get()) return true;
    }
  }
  return false;
}

// Null: the last instruction dropped no last reference to an object whose finalization is observable.
Borrowed Finalizers::dropped(const Position& position) {
  for (HeldInside& held : held_inside_) {
    if (held.version != nullptr && *held.version == held.seen) continue;
    size_t found = 0;
    each_part(held.shadow->kind, held.shadow->copy.get(), [&](PyObject* part) {
      PyObject* original = original_of(part);
      if (std::ranges::any_of(held.objects, [&](const Ref& object) { return object.get() == original; })) found++;
    });
    if (found < held.objects.size()) return held.objects.front();
    if (held.version != nullptr) held.seen = *held.version;
  }
  for (auto held = held_in_slots_.begin(); held != held_in_slots_.end();) {
    if (is_in_a_slot(position, *held)) {
      ++held;
    } else if (is_finalization_observable(t.lifter, *held)) {
      return *held;
    } else {
      held = held_in_slots_.erase(held);  // an exhausted generator
    }
  }
  return {};
}

// To be called at the start of an instruction. False: the trace ends at the previous one.
bool Finalizers::check_all(const Position& position) {
  watch_containers();
  if (!watches) return true;
  Borrowed object = dropped(position);
  if (!object) return true;
  std::vector<BreakPoint> points;
  if (const BreakPoint* last = t.last_point()) {
    points.push_back(*last);
    for (const BreakPoint& point : t.points_here()) {
      if (point.number < points.back().number) points.push_back(point);
    }
  }
  t.current_frame = position.frame;
  t.current_index = position.next_index();
  std::string name = object.type()->tp_name;
  t.stop_here(report::Reason::last_reference, std::move(name));
  t.result.break_points = std::move(points);
  return false;
}

}  // namespace alternator::trace
