// Ownership in the type: `Ref` owns a reference, `Borrowed` does not.
// A function takes `Borrowed` and returns `Ref`.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <utility>

namespace alternator {

// A reference that somebody else keeps alive. Never null unless stated.
class Borrowed {
 public:
  constexpr Borrowed() = default;
  // Implicit, because this is the C API's type.
  constexpr Borrowed(PyObject* object) : object_(object) {}  // NOLINT(google-explicit-constructor)
  template <class T>
    requires requires(T* t) { t->ob_base; }
  Borrowed(T* object) : object_(reinterpret_cast<PyObject*>(object)) {}  // NOLINT(google-explicit-constructor)

  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  PyTypeObject* type() const { return Py_TYPE(object_); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(object_);
  }
  friend bool operator==(Borrowed a, Borrowed b) { return a.object_ == b.object_; }

 private:
  PyObject* object_ = nullptr;
};

// An owned reference; null after a failed C API call or a move.
class [[nodiscard]] Ref {
 public:
  constexpr Ref() = default;
  // Takes over the reference that a C API call returned.
  static Ref steal(PyObject* object) { return Ref(object); }
  // Takes one more reference to an object that is alive.
  static Ref share(Borrowed object) { return Ref(Py_XNewRef(object.get())); }

  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    // The old value is released last: its finalizer may run code that reads this slot.
    PyObject* old = std::exchange(object_, std::exchange(other.object_, nullptr));
    Py_XDECREF(old);
    return *this;
  }
  Ref(const Ref& other) noexcept : object_(Py_XNewRef(other.object_)) {}
  Ref& operator=(const Ref& other) noexcept { return *this = Ref(other); }
  ~Ref() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  // Gives the reference away: to a C API call that steals, or as a slot's return value.
  PyObject* release() { return std::exchange(object_, nullptr); }
  void reset() { *this = Ref(); }
  explicit operator bool() const { return object_ != nullptr; }
  // Implicit, because lending is always safe.
  operator Borrowed() const { return Borrowed(object_); }  // NOLINT(google-explicit-constructor)
  PyTypeObject* type() const { return Py_TYPE(object_); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(object_);
  }
  friend bool operator==(const Ref& a, const Ref& b) { return a.object_ == b.object_; }
  friend bool operator==(const Ref& a, Borrowed b) { return a.object_ == b.get(); }

 private:
  explicit Ref(PyObject* object) : object_(object) {}
  PyObject* object_ = nullptr;
};

}  // namespace alternator
