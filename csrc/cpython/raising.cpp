// Raising, the exception table, and which types may be caught.
//
// Follows the logic of CPython's ceval.c.
// Copyright (c) 2001-2023 Python Software Foundation; All Rights Reserved. See LICENSES/PSF-2.0.txt.
#include "cpython/operations.h"
#include "py/names.h"

namespace alternator::cpython {

static const unsigned char* read_varint(const unsigned char* p, int* result) {
  int value = *p & 63;
  while ((*p & 64) != 0) {
    p++;
    value = (value << 6) | (*p & 63);
  }
  *result = value;
  return p + 1;
}

bool find_handler(PyCodeObject* code, int index, Handler* handler) {
  const auto* p = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(code->co_exceptiontable));
  const auto* end = p + PyBytes_GET_SIZE(code->co_exceptiontable);
  while (p < end) {
    int start, size, target, depth_and_lasti;
    p = read_varint(p, &start);
    p = read_varint(p, &size);
    if (start > index) return false;
    p = read_varint(p, &target);
    p = read_varint(p, &depth_and_lasti);
    if (index < start + size) {
      *handler = {depth_and_lasti >> 1, target, (depth_and_lasti & 1) != 0};
      return true;
    }
  }
  return false;
}

static Raised reraise_handled(PyThreadState* ts) {
  _PyErr_StackItem* item = ts->exc_info;
  while ((item->exc_value == nullptr || item->exc_value == Py_None) && item->previous_item != nullptr) {
    item = item->previous_item;
  }
  if (item->exc_value == nullptr || item->exc_value == Py_None) {
    PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
    return Raised::kNew;
  }
  set_raised(Ref::share(item->exc_value));
  return Raised::kReraised;
}

static void set_not_an_exception(Borrowed called, Borrowed returned) {
  PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", called.get(),
               returned.type());
}

// The instance that `raise X` means: X itself or X().
static Ref exception_instance(Borrowed exception) {
  if (PyExceptionInstance_Check(exception.get())) return Ref::share(exception);
  if (!PyExceptionClass_Check(exception.get())) {
    PyErr_SetString(PyExc_TypeError, "exceptions must derive from BaseException");
    return {};
  }
  Ref value = Ref::steal(PyObject_CallNoArgs(exception.get()));
  if (value && !PyExceptionInstance_Check(value.get())) {
    set_not_an_exception(exception, value);
    return {};
  }
  return value;
}

Raised raise_exception(PyThreadState* ts, Ref exception, Ref cause) {
  if (!exception) return reraise_handled(ts);
  Ref value = exception_instance(exception);
  if (!value) return Raised::kNew;
  if (cause) {
    Ref fixed;
    if (PyExceptionClass_Check(cause.get())) {
      fixed = Ref::steal(PyObject_CallNoArgs(cause.get()));
      if (!fixed) return Raised::kNew;
      if (kChecksCause && !PyExceptionInstance_Check(fixed.get())) {
        set_not_an_exception(cause, fixed);
        return Raised::kNew;
      }
    } else if (PyExceptionInstance_Check(cause.get())) {
      fixed = std::move(cause);
    } else if (cause.get() != Py_None) {
      PyErr_SetString(PyExc_TypeError, "exception causes must derive from BaseException");
      return Raised::kNew;
    }
    PyException_SetCause(value.get(), fixed.release());
  }
  // `raise Class` names the class; an instance is raised as its own class.
  PyObject* type =
      PyExceptionClass_Check(exception.get()) ? exception.get() : reinterpret_cast<PyObject*>(Py_TYPE(value.get()));
  PyErr_SetObject(type, value.get());
  return Raised::kNew;
}

template <class Predicate>
static int check_each_type(Borrowed type, Predicate ok, const char* message) {
  bool good = true;
  if (PyTuple_Check(type.get())) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type.get()); i++) good = good && ok(PyTuple_GET_ITEM(type.get(), i));
  } else {
    good = ok(type.get());
  }
  if (good) return 0;
  PyErr_SetString(PyExc_TypeError, message);
  return -1;
}

int check_except_type(Borrowed type) {
  return check_each_type(
      type, [](PyObject* t) { return PyExceptionClass_Check(t) != 0; },
      "catching classes that do not inherit from BaseException is not allowed");
}

static int check_except_star_type(Borrowed type) {
  if (check_except_type(type) < 0) return -1;
  bool failed = false;
  auto is_no_group = [&](PyObject* t) {
    const Tri is_group(PyObject_IsSubclass(t, PyExc_BaseExceptionGroup));
    failed = failed || is_group.error();
    return !is_group.yes();
  };
  const int status =
      check_each_type(type, is_no_group, "catching ExceptionGroup with except* is not allowed. Use except instead.");
  return failed ? -1 : status;
}

GroupMatch match_exception_group(Borrowed exception, Borrowed type) {
  if (check_except_star_type(type) < 0) return {};
  if (exception.get() == Py_None) return {Ref::share(Py_None), Ref::share(Py_None)};
  const bool is_group = PyObject_TypeCheck(exception.get(), reinterpret_cast<PyTypeObject*>(PyExc_BaseExceptionGroup));
  if (PyErr_GivenExceptionMatches(exception.get(), type.get())) {
    if (is_group) return {Ref::share(exception), Ref::share(Py_None)};
    Ref group = Ref::steal(PyObject_CallFunction(PyExc_BaseExceptionGroup, "s(O)", "", exception.get()));
    if (!group) return {};
    return {std::move(group), Ref::share(Py_None)};
  }
  if (!is_group) return {Ref::share(Py_None), Ref::share(exception)};
  Ref pair = Ref::steal(PyObject_CallMethodOneArg(exception.get(), names::split, type.get()));
  if (!pair) return {};
  if (!PyTuple_CheckExact(pair.get())) {
    PyErr_Format(PyExc_TypeError, "%.200s.split must return a tuple, not %.200s", Py_TYPE(exception.get())->tp_name,
                 Py_TYPE(pair.get())->tp_name);
    return {};
  }
  if (PyTuple_GET_SIZE(pair.get()) < 2) {
    PyErr_Format(PyExc_TypeError, "%.200s.split must return a 2-tuple, got tuple of size %zd",
                 Py_TYPE(exception.get())->tp_name, PyTuple_GET_SIZE(pair.get()));
    return {};
  }
  return {Ref::share(PyTuple_GET_ITEM(pair.get(), 0)), Ref::share(PyTuple_GET_ITEM(pair.get(), 1))};
}

}  // namespace alternator::cpython
