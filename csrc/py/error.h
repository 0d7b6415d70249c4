// The three kinds of failure: the user's exception (`PyError`), an operation that cannot be traced (`Break`, in
// report/), and an internal bug (`ALT_CHECK`).
#pragma once

#include "py/ref.h"

#include <exception>
#include <stdexcept>
#include <string>

namespace alternator {

// A Python exception is set in the thread state, which holds it: this object carries nothing.
class PyError : public std::exception {
 public:
  const char* what() const noexcept override { return "a Python exception is set"; }
};

// A broken internal invariant. Reported as alternator's SystemError; the frame then falls back to eager.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void internal_error(const char* condition, const char* file, int line, const std::string& message);

#define ALT_CHECK(condition, ...)                                                               \
  do {                                                                                          \
    if (!(condition)) [[unlikely]]                                                              \
      ::alternator::internal_error(#condition, __FILE__, __LINE__, ::std::string(__VA_ARGS__)); \
  } while (false)

// Throws PyError if a C API call returned null.
inline Ref checked(PyObject* object) {
  if (object == nullptr) [[unlikely]]
    throw PyError();
  return Ref::steal(object);
}
inline Ref checked(Ref object) {
  if (!object) [[unlikely]]
    throw PyError();
  return object;
}
inline void check_status(int status) {
  if (status < 0) [[unlikely]]
    throw PyError();
}

// A C API result of 1, 0 or -1 (yes, no, error): never tested as a raw int.
class [[nodiscard]] Tri {
 public:
  explicit Tri(int value) : value_(value) {}
  bool error() const { return value_ < 0; }
  bool yes() const { return value_ > 0; }
  bool no() const { return value_ == 0; }
  // Throws PyError on -1.
  bool value() const {
    if (error()) [[unlikely]]
      throw PyError();
    return yes();
  }

 private:
  int value_;
};

inline Tri contains(Borrowed container, Borrowed key) { return Tri(PySequence_Contains(container.get(), key.get())); }
inline Tri truth(Borrowed object) { return Tri(PyObject_IsTrue(object.get())); }
inline Tri is_instance(Borrowed object, Borrowed type) { return Tri(PyObject_IsInstance(object.get(), type.get())); }

// Converts the C++ exception being handled into a Python one. Only inside a catch clause.
void set_python_error() noexcept;

// The body of a C slot: C++ exceptions are caught here and become Python ones. `failure` is what the slot returns on
// error (nullptr or -1).
template <class Result, class Body>
Result guarded(Result failure, Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    set_python_error();
    return failure;
  }
}
// The same for a slot that returns a new reference. A null Ref means that an exception is set, as in the C API.
template <class Body>
PyObject* guarded(Body&& body) noexcept {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* { return checked(Ref(body())).release(); });
}

// Saves the caller's error indicator for a scope whose code may set or clear its own. An error that the code leaves set
// is dropped.
class SavedError {
 public:
  SavedError() : unwinding_(std::uncaught_exceptions()) { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~SavedError() {
    if (std::uncaught_exceptions() > unwinding_ && PyErr_Occurred()) {
      // The scope is left by a PyError: the indicator holds its exception, keep that one.
      Py_XDECREF(type_);
      Py_XDECREF(value_);
      Py_XDECREF(traceback_);
      return;
    }
    PyErr_Restore(type_, value_, traceback_);
  }
  SavedError(const SavedError&) = delete;
  SavedError& operator=(const SavedError&) = delete;

 private:
  int unwinding_;
  PyObject *type_, *value_, *traceback_;
};

}  // namespace alternator
