// Objects that user code may mutate, besides pre-existing ones.
#pragma once

#include "lift/lifting/layouts.h"
#include "trace/core/tracer.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

namespace alternator::trace {

// Objects created in the trace that a function can reach, with their contents.
class Reachable {
 public:
  explicit Reachable(const lift::Lifter& lifter) : lifter_(lifter) {}

  // False: one of them has state that cannot be inspected, or there are too many.
  bool add(Borrowed root) {
    std::vector<Ref> waiting;
    waiting.push_back(Ref::share(root));
    while (!waiting.empty()) {
      Ref object = std::move(waiting.back());
      waiting.pop_back();
      if (!object || is_leaf(object) || !seen_.insert(object.get()).second) continue;
      if (hides_state(object) || objects_.size() == kMost) return false;
      std::vector<Ref> parts = parts_of(object);
      for (const Ref& part : parts) waiting.push_back(part);
      objects_.push_back({std::move(object), originals(std::move(parts))});
    }
    return true;
  }

  bool unchanged() const {
    auto same = [](const Ref& a, const Ref& b) { return a.get() == b.get(); };
    return std::ranges::all_of(objects_, [&](const Held& held) {
      const std::vector<Ref> parts = originals(parts_of(held.object));
      return std::ranges::equal(parts, held.parts, same);
    });
  }

 private:
  static constexpr size_t kMost = 50'000;
  struct Held {
    Ref object;
    std::vector<Ref> parts;
  };

  // The lifter tracks writes to pre-existing objects; tensors have version counters.
  bool is_leaf(Borrowed object) const {
    PyObject* raw = object.get();
    if (raw == Py_None || lift::is_plain(raw) || graph::is_tensor(object) || Py_IS_TYPE(raw, &lazy_type) ||
        Py_IS_TYPE(raw, &PyBaseObject_Type) || is_deferred_random(object) || is_identity(object) ||
        fake::is_symbol(object))
      return true;
    if (lifter_.made_here(object)) return false;
    return lifter_.known(object) != nullptr || PyType_Check(raw) || PyModule_Check(raw) || PyCode_Check(raw);
  }

  static bool shows_all(Borrowed object) {
    PyObject* raw = object.get();
    PyTypeObject* type = object.type();
    if (PyList_Check(raw) || PyTuple_Check(raw) || PyDict_Check(raw) || PyAnySet_Check(raw) || PyType_Check(raw) ||
        PyCell_Check(raw) || PyFunction_Check(raw) || PyMethod_Check(raw) || PyExceptionInstance_Check(raw) ||
        type == lift::known_types().partial || type == lift::known_types().deque)
      return true;
    return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && lift::layout_base(type) == &PyBaseObject_Type;
  }

  static bool hides_state(Borrowed object) {
    PyTypeObject* type = object.type();
    if (PyIter_Check(object.get())) return true;
    // Native types may have state that tp_traverse does not visit: a StringIO, an array.
    if (PyObject_IS_GC(object.get())) return !shows_all(object);
    // Objects that are hashed by value are immutable.
    return type->tp_hash == PyObject_HashNotImplemented || type->tp_hash == PyBaseObject_Type.tp_hash;
  }

  // Reading a pre-existing value replaces its lazy object by the lifted one: that is not a change.
  std::vector<Ref> originals(std::vector<Ref> parts) const {
    for (Ref& part : parts) {
      if (!part) continue;
      if (Py_IS_TYPE(part.get(), &lazy_type)) part = Ref::share(part.as<LazyObject>()->value);
      if (const lift::Known* known = lifter_.known(part); known != nullptr && known->original)
        part = Ref(known->original);
    }
    return parts;
  }

  static std::vector<Ref> parts_of(Borrowed object) {
    std::vector<Ref> parts;
    if (PyFunction_Check(object.get())) {
      auto* function = object.as<PyFunctionObject>();
      for (PyObject* part :
           {function->func_closure, function->func_defaults, function->func_kwdefaults, function->func_dict})
        parts.push_back(part != nullptr ? Ref::share(part) : Ref());
      return parts;
    }
    if (PyObject_IS_GC(object.get()) == 0) return parts;
    (void)_PyObject_GetDictPtr(object.get());  // materializes its __dict__, if it can have one
    object.type()->tp_traverse(
        object.get(),
        [](PyObject* part, void* to) {
          static_cast<std::vector<Ref>*>(to)->push_back(Ref::share(part));
          return 0;
        },
        &parts);
    return parts;
  }

  const lift::Lifter& lifter_;
  std::unordered_set<PyObject*> seen_;
  std::vector<Held> objects_;
};

}  // namespace alternator::trace
