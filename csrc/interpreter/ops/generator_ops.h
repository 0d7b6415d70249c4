// Generators, coroutines, asynchronous iteration.
#pragma once

#include "interpreter/machine.h"
#include "interpreter/ops/exception_ops.h"

namespace alternator {

// Creating a generator copies the frame with functions that are not exported.
ALT_OP(RETURN_GENERATOR) { return Flow::kLeave; }

ALT_OP(YIELD_VALUE) {
  if (m.escape(1) < 0) return Flow::kError;
  m.result = *--m.sp;
  cpython::suspend(m.ts, m.frame, oparg);
  return Flow::kYield;
}

ALT_OP(SEND) {
  Ref result;
  const PySendResult status = m.semantics.send(m.peek(2), m.peek(1), &result);
  if (status == PYGEN_ERROR) return Flow::kError;
  m.drop(1);
  if (status == PYGEN_RETURN) {
    if constexpr (!cpython::kSendKeepsReceiver) m.drop(1);
    m.jump(oparg);
  }
  m.push(std::move(result));
  return Flow::kNext;
}

ALT_OP(END_SEND) {
  Ref value = m.pop();
  m.drop(1);
  m.push(std::move(value));
  return Flow::kNext;
}

ALT_OP(CLEANUP_THROW) {
  PyObject* exception = m.peek(1);
  if (!PyErr_GivenExceptionMatches(exception, PyExc_StopIteration)) {
    if (leaves_frame(m)) return Flow::kLeave;
    cpython::set_raised(Ref::share(exception));
    return Flow::kUnwind;
  }
  Ref value = Ref::share(reinterpret_cast<PyStopIterationObject*>(exception)->value);
  m.drop(3);
  m.push(Ref::share(Py_None));
  m.push(std::move(value));
  return Flow::kNext;
}

ALT_OP(GET_YIELD_FROM_ITER) {
  PyObject* iterable = m.peek(1);
  if (PyCoro_CheckExact(iterable)) {
    if ((m.code->co_flags & (CO_COROUTINE | CO_ITERABLE_COROUTINE)) == 0) {
      PyErr_SetString(PyExc_TypeError, "cannot 'yield from' a coroutine object in a non-coroutine generator");
      return Flow::kError;
    }
    return Flow::kNext;
  }
  if (PyGen_CheckExact(iterable)) return Flow::kNext;
  return m.replace(1, m.semantics.get_iterator(iterable));
}

ALT_OP(GET_AWAITABLE) { return m.replace(1, m.semantics.get_awaitable(m.peek(1), oparg)); }
ALT_OP(GET_AITER) { return m.replace(1, m.semantics.get_async_iterator(m.peek(1))); }
ALT_OP(GET_ANEXT) { return m.push_or_fail(m.semantics.get_async_next(m.peek(1))); }

ALT_OP(ASYNC_GEN_WRAP) { return m.replace(1, cpython::run_micro(cpython::Micro::kAsyncGenWrap, {m.peek(1)})); }

ALT_OP(END_ASYNC_FOR) {
  PyObject* exception = m.peek(1);
  if (PyErr_GivenExceptionMatches(exception, PyExc_StopAsyncIteration)) return m.consume(2, 0);
  if (leaves_frame(m)) return Flow::kLeave;
  cpython::set_raised(m.pop());
  return Flow::kUnwind;
}

}  // namespace alternator
