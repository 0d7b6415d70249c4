// Awaiting and asynchronous iteration.
//
// Follows the logic of CPython's ceval.c.
// Copyright (c) 2001-2023 Python Software Foundation; All Rights Reserved. See LICENSES/PSF-2.0.txt.
#include "cpython/operations.h"

namespace alternator::cpython {

static unaryfunc async_slot(PyTypeObject* type, unaryfunc PyAsyncMethods::* slot) {
  return type->tp_as_async != nullptr ? type->tp_as_async->*slot : nullptr;
}

static bool is_iterable_coroutine(Borrowed object) {
  return PyGen_CheckExact(object.get()) &&
         (code_of_generator(object.as<PyGenObject>())->co_flags & CO_ITERABLE_COROUTINE) != 0;
}

Ref awaitable_iterator(Borrowed object) {
  if (PyCoro_CheckExact(object.get()) || is_iterable_coroutine(object)) return Ref::share(object);
  unaryfunc await = async_slot(object.type(), &PyAsyncMethods::am_await);
  if (await == nullptr) {
    PyErr_Format(PyExc_TypeError, "object %.100s can't be used in 'await' expression", object.type()->tp_name);
    return {};
  }
  Ref result = Ref::steal(await(object.get()));
  if (!result) return {};
  if (PyCoro_CheckExact(result.get()) || is_iterable_coroutine(result)) {
    PyErr_SetString(PyExc_TypeError, "__await__() returned a coroutine");
    return {};
  }
  if (!PyIter_Check(result.get())) {
    PyErr_Format(PyExc_TypeError, "__await__() returned non-iterator of type '%.100s'", result.type()->tp_name);
    return {};
  }
  return result;
}

Ref get_awaitable(Borrowed object, int oparg) {
  Ref iterator = awaitable_iterator(object);
  if (!iterator) {
    if (oparg != 0 && async_slot(object.type(), &PyAsyncMethods::am_await) == nullptr) {
      PyErr_Format(PyExc_TypeError,
                   oparg == 1
                       ? "'async with' received an object from __aenter__ that does not implement __await__: %.100s"
                       : "'async with' received an object from __aexit__ that does not implement __await__: %.100s",
                   object.type()->tp_name);
    }
    return {};
  }
  if (PyCoro_CheckExact(iterator.get()) && yield_from_target(iterator.as<PyGenObject>())) {
    PyErr_SetString(PyExc_RuntimeError, "coroutine is being awaited already");
    return {};
  }
  return iterator;
}

Ref get_async_iterator(Borrowed object) {
  unaryfunc aiter = async_slot(object.type(), &PyAsyncMethods::am_aiter);
  if (aiter == nullptr) {
    PyErr_Format(PyExc_TypeError, "'async for' requires an object with __aiter__ method, got %.100s",
                 object.type()->tp_name);
    return {};
  }
  Ref iterator = Ref::steal(aiter(object.get()));
  if (iterator && async_slot(iterator.type(), &PyAsyncMethods::am_anext) == nullptr) {
    PyErr_Format(PyExc_TypeError,
                 "'async for' received an object from __aiter__ that does not implement __anext__: %.100s",
                 iterator.type()->tp_name);
    return {};
  }
  return iterator;
}

Ref get_async_next(Borrowed iterator) {
  unaryfunc anext = async_slot(iterator.type(), &PyAsyncMethods::am_anext);
  if (anext == nullptr) {
    PyErr_Format(PyExc_TypeError, "'async for' requires an iterator with __anext__ method, got %.100s",
                 iterator.type()->tp_name);
    return {};
  }
  Ref next = Ref::steal(anext(iterator.get()));
  if (!next || PyAsyncGen_CheckExact(iterator.get())) return next;
  Ref awaitable = awaitable_iterator(next);
  if (!awaitable) {
    _PyErr_FormatFromCause(PyExc_TypeError, "'async for' received an invalid object from __anext__: %.100s",
                           next.type()->tp_name);
  }
  return awaitable;
}

}  // namespace alternator::cpython
