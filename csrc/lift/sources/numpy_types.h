// numpy scalars: plain values like Python's. Arrays of such scalars.
#pragma once

#include "py/error.h"

#include <cstdint>
#include <vector>

namespace alternator::lift {

// Complex numbers, strings, dates and long doubles are excluded: converting them warns, or their bytes have padding.
enum class NumpyKind : uint8_t { kNone, kBool, kInteger, kFloat, kDouble };
NumpyKind numpy_kind_of(PyTypeObject* type);

inline NumpyKind numpy_kind(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  // All of them have this layout, and few other types do.
  const bool possible = (type->tp_flags & (Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_HAVE_GC)) == 0 && type->tp_itemsize == 0 &&
                        type->tp_basicsize == static_cast<Py_ssize_t>(sizeof(PyFloatObject));
  return possible ? numpy_kind_of(type) : NumpyKind::kNone;
}
inline bool is_numpy_number(PyObject* object) { return numpy_kind(object) != NumpyKind::kNone; }

// Two scalars of the same type, by their bits.
bool numpy_equal(PyObject* a, PyObject* b);
bool numpy_is_nan(PyObject* number);
// The int, float or bool of the same value.
Ref python_number(Borrowed numpy_number);

// A pure numpy function, whose result depends on its arguments only: a ufunc such as numpy.log, numpy.prod.
bool is_numpy_function(Borrowed object);
std::vector<PyObject*> numpy_functions();
std::vector<PyTypeObject*> numpy_number_types();

// numpy.ndarray itself, no subclass; any dtype.
bool is_array(PyObject* object);
PyTypeObject* array_type();  // null: there is no numpy
// type(numpy.dtype): a class that is called like a function.
bool is_dtype_class(Borrowed object);
PyObject* dtype_class();  // null: there is no numpy
// The dtype of an array with elements of the kinds above, in numpy's canonical form: one object each.
bool is_numpy_dtype(PyObject* object);

// The memory layout of an array.
struct ArrayFields {
  PyObject_HEAD char* data;
  int dimensions;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  PyObject* base;  // owner of its memory; null: itself
  PyObject* dtype;
  int flags;
};
inline ArrayFields& fields_of(Borrowed array) { return *array.as<ArrayFields>(); }
inline bool is_number_array(PyObject* object) {
  return is_array(object) && is_numpy_dtype(reinterpret_cast<ArrayFields*>(object)->dtype);
}
bool is_writeable(Borrowed array);
bool is_aligned(Borrowed array);
bool is_c_contiguous(Borrowed array);
Py_ssize_t element_count(Borrowed array);
Py_ssize_t element_size(Borrowed array);  // of scalars
// The last array on the path of bases to the owner of the memory.
Borrowed array_root(Borrowed array);
// The array that owns the memory; null: another kind of object does.
Borrowed array_owner(Borrowed array);
// A read-only copy of a pre-existing array that may be lifted, with the same elements in the same order. Null: it is
// too large, has another kind of elements, or its memory is not numpy's alone.
Ref fixed_copy(Borrowed array);
// What a guard compares with later: a tuple of its dtype, shape, strides and bytes. The array has no gaps. If its
// memory is not numpy's, it matches any elements: without the bytes.
Ref contents_of_array(Borrowed array);
// Whether it is an array that may be lifted, and has these contents.
bool array_has(PyObject* array, PyObject* contents);
// Whether this is numpy's error for a write to such a copy.
bool is_read_only_error(PyObject* type, PyObject* value);

// While it lives, a floating-point error in numpy raises instead of warning: whether one is shown, ignored or raised
// has to be decided by each call.
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
// User code runs concretely in a trace, with the user's settings for such errors.
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
// While it lives, floating-point errors are ignored; or raise, except those that this thread ignores.
class NumpyErrorsSet {
 public:
  enum class Kind : uint8_t { kIgnored, kRaised };
  explicit NumpyErrorsSet(Kind kind);
  ~NumpyErrorsSet();
  NumpyErrorsSet(const NumpyErrorsSet&) = delete;
  NumpyErrorsSet& operator=(const NumpyErrorsSet&) = delete;

 private:
  Ref token_;
};

// While it lives, warnings of this thread are raised as exceptions.
class WarningsRaise {
 public:
  WarningsRaise();
  ~WarningsRaise();
  WarningsRaise(const WarningsRaise&) = delete;
  WarningsRaise& operator=(const WarningsRaise&) = delete;

 private:
  Ref filters_, filter_;
  bool outer_;
};

}  // namespace alternator::lift
