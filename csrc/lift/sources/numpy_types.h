// Numbers of numpy: plain values like Python's own. Arrays of such numbers.
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

// numpy.ndarray itself, no subclass; any type of elements.
bool is_array(PyObject* object);
PyTypeObject* array_type();  // null: there is no numpy
// The type of numpy.dtype's: a class that is called like a function.
bool is_dtype_class(Borrowed object);
// The type of the elements of an array, where they are numbers of the kinds above, as numpy itself names it: one object
// each.
bool is_numpy_dtype(PyObject* object);

// Where an array's elements lie.
struct ArrayFields {
  PyObject_HEAD char* data;
  int dimensions;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  PyObject* base;  // whose memory it is; null: its own
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
Py_ssize_t element_size(Borrowed array);  // of numbers
// The last array on the way to what has the memory.
Borrowed array_root(Borrowed array);
// The array that has the memory; null: something else has it.
Borrowed array_owner(Borrowed array);
// Of an outside array that may be lifted: the same numbers in the same order, in memory of its own that nobody may
// write. Null: it is too large, not of numbers, or its memory is not numpy's alone.
Ref fixed_copy(Borrowed array);
// What a guard compares with later: a tuple of its type, shape, strides and bytes. The array has no gaps. Where its
// memory is not numpy's, it stands for any numbers: without the bytes.
Ref contents_of_array(Borrowed array);
// Whether it is an array that may be lifted, and has these.
bool array_has(PyObject* array, PyObject* contents);
// What numpy raises where a program writes to such a copy.
bool is_read_only_error(PyObject* type, PyObject* value);

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
// While it lives, floating-point errors are ignored; or are exceptions, all but those that this thread ignores.
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

// While it lives, a warning of this thread is an exception.
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
