// References to objects that do not keep user objects alive.
#pragma once

#include "py/error.h"

namespace alternator::guards {

// Objects that a guard may hold strongly: immutable values, classes, modules, code, C functions and descriptors. They
// own none of a call's inputs. Everything else (instances, functions with their cells, containers) is held by weak
// reference.
bool may_hold(PyObject* object);

// Recognizes an object later. Its address alone would not do: another object may have been allocated there meanwhile.
class Pin {
 public:
  Pin() = default;
  // Strong if may_hold(), or if the object does not support weak references (object(), a foreign iterator).
  explicit Pin(Borrowed object);

  // The object; null once it has died.
  PyObject* get() const {
    return !weak_ || reinterpret_cast<PyWeakReference*>(holder_.get())->wr_object == address_ ? address_ : nullptr;
  }
  bool is(PyObject* object) const { return object == address_ && get() != nullptr; }
  bool is_weak() const { return weak_; }
  // For a weak one: the word that holds the object's address until it dies.
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
