// Numbers of numpy: plain values like Python's own.
#pragma once

#include "py/error.h"

#include <cstdint>

namespace alternator::lift {

// Complex numbers, texts, dates and long doubles are left out: converting them warns, or their bytes have gaps.
enum class NumpyKind : uint8_t { kNone, kBool, kInteger, kFloat, kDouble };
NumpyKind numpy_kind_of(PyTypeObject* type);

inline NumpyKind numpy_kind(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  // All of them look like this, and little else does.
  const bool possible = (type->tp_flags & (Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_HAVE_GC)) == 0 && type->tp_itemsize == 0 &&
                        type->tp_basicsize == static_cast<Py_ssize_t>(sizeof(PyFloatObject));
  return possible ? numpy_kind_of(type) : NumpyKind::kNone;
}
inline bool is_numpy_number(PyObject* object) { return numpy_kind(object) != NumpyKind::kNone; }

// Two numbers of the same type, by their bits.
bool numpy_equal(PyObject* a, PyObject* b);
bool numpy_is_nan(PyObject* number);
// The int, float or bool of the same value.
Ref python_number(Borrowed numpy_number);

// A function of numpy's own whose result is known where its arguments are: a ufunc such as numpy.log, numpy.prod.
bool is_numpy_function(Borrowed object);

// While it lives, a floating-point error of numpy's is an exception and no warning: whether one is shown, ignored or
// raised is for each call to find out.
class NumpyErrors {
 public:
  NumpyErrors();
  ~NumpyErrors();
  NumpyErrors(const NumpyErrors&) = delete;
  NumpyErrors& operator=(const NumpyErrors&) = delete;

 private:
  friend class NumpyErrorsAsBefore;
  void enter();
  void leave();
  Ref token_;
  NumpyErrors* outer_;
};
// Code of the user's runs in a trace for real, with what the user wants about such errors.
class NumpyErrorsAsBefore {
 public:
  NumpyErrorsAsBefore();
  ~NumpyErrorsAsBefore();
  NumpyErrorsAsBefore(const NumpyErrorsAsBefore&) = delete;
  NumpyErrorsAsBefore& operator=(const NumpyErrorsAsBefore&) = delete;

 private:
  NumpyErrors* scope_;
};
bool is_numpy_error(PyObject* type, PyObject* value);

}  // namespace alternator::lift
