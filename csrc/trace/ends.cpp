// Objects from outside whose end somebody would notice: one with a `__del__`, one that a weak reference with a callback
// watches, a generator that has a `finally` to run. What the program drops lives on until the compiled part has ended,
// so an instruction that lets go of such an object is executed for real.
#include "trace/tracer.h"

#include "cpython/objects.h"
#include "fake/python_tensor.h"
#include "py/names.h"

#include <frameobject.h>

#include <algorithm>

namespace alternator::trace {

namespace {

constexpr int kDeep = 2;             // how far into what a dropped object holds
constexpr Py_ssize_t kLarge = 4096;  // larger containers hold no such things

bool is_suspended_in_a_block(PyObject* object) {
  if (!PyGen_CheckExact(object) && !PyCoro_CheckExact(object)) return false;
  auto* generator = reinterpret_cast<PyGenObject*>(object);
  return cpython::is_suspended(generator) &&
         PyBytes_GET_SIZE(cpython::code_of(cpython::frame_of_generator(generator))->co_exceptiontable) > 0;
}

// The weak containers of the library, and torch, only forget what is gone.
bool only_forgets(PyObject* callback) {
  if (!PyFunction_Check(callback)) return false;
  PyObject* module = reinterpret_cast<PyFunctionObject*>(callback)->func_module;
  const char* name = module != nullptr && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
  if (name == nullptr) return PyErr_Clear(), false;
  const std::string_view text(name);
  return text == "weakref" || text == "_weakrefset" || text.starts_with("torch.");
}

bool is_watched(PyObject* object) {
  if (PyType_SUPPORTS_WEAKREFS(Py_TYPE(object)) == 0) return false;
  auto* reference = *reinterpret_cast<PyWeakReference**>(PyObject_GET_WEAKREFS_LISTPTR(object));
  for (; reference != nullptr; reference = reference->wr_next) {
    if (reference->wr_callback != nullptr && !only_forgets(reference->wr_callback)) return true;
  }
  return false;
}

// What lives as long as the program, or holds nothing but data.
bool is_lasting(PyObject* object) {
  return PyType_Check(object) || PyModule_Check(object) || PyFunction_Check(object) || PyCode_Check(object) ||
         PyCFunction_Check(object) || lift::is_plain(object) || fake::is_tensor_object(object);
}

bool is_looked_into(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (PyList_CheckExact(object)) return PyList_GET_SIZE(object) <= kLarge;
  if (PyTuple_CheckExact(object)) return PyTuple_GET_SIZE(object) <= kLarge;
  if (PyDict_CheckExact(object)) return PyDict_GET_SIZE(object) <= kLarge;
  if (PySet_CheckExact(object)) return PySet_GET_SIZE(object) <= kLarge;
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && PyObject_IS_GC(object) != 0 &&
         lift::layout_base(type) == &PyBaseObject_Type;
}

bool is_noticed(PyObject* object, int depth);

// An exception keeps the variables of the frames that it has left.
bool keeps_noticed(PyObject* exception) {
  PyObject* traceback = reinterpret_cast<PyBaseExceptionObject*>(exception)->traceback;
  if (traceback == nullptr || !PyTraceBack_Check(traceback)) return false;
  auto* entry = reinterpret_cast<PyTracebackObject*>(traceback);
  for (; entry != nullptr; entry = entry->tb_next) {
    for (PyObject* local : cpython::locals_of(entry->tb_frame)) {
      if (is_noticed(local, 0)) return true;
    }
  }
  return false;
}

bool is_noticed(PyObject* object, int depth) {
  if (object == nullptr || is_lasting(object)) return false;
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_finalize != nullptr && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 &&
      _PyType_Lookup(type, names::__del__) != nullptr)
    return true;
  if (is_suspended_in_a_block(object) || is_watched(object)) return true;
  if (depth == 0) return false;
  if (PyExceptionInstance_Check(object)) return keeps_noticed(object);
  if (!is_looked_into(object)) return false;
  struct Visit {
    int depth;
    bool found = false;
  } visit{depth - 1};
  type->tp_traverse(
      object,
      [](PyObject* part, void* state) {
        auto* visit = static_cast<Visit*>(state);
        visit->found = is_noticed(part, visit->depth);
        return visit->found ? 1 : 0;
      },
      &visit);
  return visit.found;
}

// What an outside container holds; without asking a method of a subclass.
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

}  // namespace

// Before a place that holds `old` is written.
void Tracer::check_end(Borrowed old) {
  if (old && is_noticed(old.get(), kDeep)) stop(report::Reason::last_reference, old.type()->tp_name);
}

// What a stopped frame holds: its slots may be the only ones.
void Tracer::watch_slot(Borrowed value) {
  if (!is_noticed(value.get(), kDeep)) return;
  const auto same = [&](const Ref& other) { return Borrowed(other) == value; };
  if (std::ranges::none_of(held_in_slots_, same)) held_in_slots_.push_back(Ref::share(value));
  watches_ends_ = true;
}

// Containers that were lifted since the last instruction: what is in them now is dropped if it is not in the private
// copy any more. A module's variables are written one by one.
void Tracer::watch_containers() {
  const std::deque<lift::Shadow>& shadows = lifter.shadows();
  for (; shadows_seen_ < shadows.size(); shadows_seen_++) {
    const lift::Shadow& shadow = shadows[shadows_seen_];
    if (shadow.is_namespace || shadow.length == 0 || shadow.length > kLarge) continue;
    HeldInside held{&shadow, {}};
    each_part(shadow.kind, shadow.original.get(), [&](PyObject* part) {
      if (is_noticed(part, kDeep)) held.objects.push_back(Ref::share(part));
    });
    if (held.objects.empty()) continue;
    held_inside_.push_back(std::move(held));
    watches_ends_ = true;
  }
}

PyObject* Tracer::original_of(PyObject* value) const {
  if (value == nullptr) return nullptr;
  if (Py_IS_TYPE(value, &lazy_type)) return reinterpret_cast<LazyObject*>(value)->value;
  const lift::Known* known = lifter.known(value);
  return known != nullptr && known->original ? known->original.get() : value;
}

bool Tracer::is_in_a_slot(const Position& position, Borrowed wanted) const {
  for (cpython::Frame* frame = position.frame; frame != nullptr && frame != outermost_; frame = frame->previous) {
    if (cpython::is_incomplete(frame)) continue;
    PyCodeObject* code = cpython::code_of(frame);
    PyObject** const locals = frame->localsplus;
    PyObject** const end = frame == position.frame ? position.sp : cpython::stack_base(frame);
    for (PyObject** slot = locals; slot < end; slot++) {
      if (original_of(*slot) == wanted.get()) return true;
    }
    if (frame == position.frame) continue;
    // How much of the stack of a frame that waits is in use is not known here: these are only compared.
    for (PyObject** slot = end; slot < end + code->co_stacksize; slot++) {
      if (*slot == wanted.get() || std::ranges::find(stand_ins_, *slot) != stand_ins_.end()) return true;
    }
  }
  return false;
}

// Null: the last instruction has let go of nothing whose end would be noticed.
Borrowed Tracer::dropped(const Position& position) {
  for (const HeldInside& held : held_inside_) {
    size_t found = 0;
    each_part(held.shadow->kind, held.shadow->copy.get(), [&](PyObject* part) {
      PyObject* original = original_of(part);
      if (std::ranges::any_of(held.objects, [&](const Ref& object) { return object.get() == original; })) found++;
    });
    if (found < held.objects.size()) return held.objects.front();
  }
  for (auto held = held_in_slots_.begin(); held != held_in_slots_.end();) {
    if (is_in_a_slot(position, *held)) {
      ++held;
    } else if (is_noticed(held->get(), kDeep)) {
      return *held;
    } else {
      held = held_in_slots_.erase(held);  // a generator that has come to its end
    }
  }
  return {};
}

// An instruction begins. False: the trace ends at the one before.
bool Tracer::check_ends(const Position& position) {
  watch_containers();
  if (!watches_ends_) return true;
  Borrowed object = dropped(position);
  if (!object) return true;
  std::vector<BreakPoint> points;
  if (!active_.empty()) {
    points.push_back(active_.back().at);  // its frame may be gone
    for (const BreakPoint& point : points_here()) {
      if (point.number < points.back().number) points.push_back(point);
    }
  }
  frame_ = position.frame;
  index_ = position.next_index();
  std::string name = object.type()->tp_name;
  stop_here(report::Reason::last_reference, std::move(name));
  break_points = std::move(points);
  return false;
}

}  // namespace alternator::trace
