// Remembering an object without keeping it alive, where it is the user's.
#pragma once

#include "py/error.h"

namespace alternator::guards {

// Objects that a guard may hold: values that cannot change, classes, modules, code, C functions and descriptors. They
// own nothing of a call's inputs. Everything else (instances, functions with their cells, containers) is remembered
// weakly.
bool may_hold(PyObject* object);

// An object, known again later. Its address alone would not do: another object may have got it meanwhile.
class Pin {
 public:
  Pin() = default;
  // Holds it if it may be held, or if it cannot be referred to weakly (object(), a foreign iterator).
  explicit Pin(Borrowed object);

  // The object; null once it is gone.
  PyObject* get() const {
    return !weak_ || reinterpret_cast<PyWeakReference*>(holder_.get())->wr_object == address_ ? address_ : nullptr;
  }
  bool is(PyObject* object) const { return object == address_ && get() != nullptr; }
  bool is_weak() const { return weak_; }
  // With a weak one: where the object's address stands until it dies.
  PyObject* const* word() const { return &reinterpret_cast<PyWeakReference*>(holder_.get())->wr_object; }
  // Whether a pin to this object keeps it alive.
  static bool holds(PyObject* object) { return may_hold(object) || !PyType_SUPPORTS_WEAKREFS(Py_TYPE(object)); }

  template <class Visit>
  void each_object(Visit&& visit) {
    visit(holder_);
  }

 private:
  PyObject* address_ = nullptr;
  Ref holder_;  // the object, or a weak reference to it
  bool weak_ = false;
};

}  // namespace alternator::guards
