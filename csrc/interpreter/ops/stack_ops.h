// Stack, locals, constants.
#pragma once

#include "interpreter/machine.h"

namespace alternator {

ALT_OP(NOP) { return Flow::kNext; }

ALT_OP(POP_TOP) {
  Py_DECREF(*--m.sp);
  return Flow::kNext;
}

ALT_OP(PUSH_NULL) {
  m.push_null();
  return Flow::kNext;
}

ALT_OP(COPY) {
  // COPY and POP_EXCEPT leave a handler by an exception: the frame handles none from then on, and its slot stays on the
  // stack. A capture between them would find the callers' exception there twice.
  if (m.saved_exception_slot >= 0 && m.saved_exception_slot == m.slot() - oparg &&
      cpython::base_opcode(*m.next) == POP_EXCEPT) [[unlikely]] {
    m.next += 1 + cpython::caches(POP_EXCEPT);
    m.saved_exception_slot = -1;
    PyObject* previous = cpython::as_handled(Py_NewRef(m.peek(oparg)));
    Py_XDECREF(std::exchange(cpython::handled_exception(m.ts), previous));
    return Flow::kNext;
  }
  m.push(Ref::share(m.peek(oparg)));
  return Flow::kNext;
}

ALT_OP(SWAP) {
  std::swap(m.peek(1), m.peek(oparg));
  if (m.saved_exception_slot >= 0) [[unlikely]] {
    const int top = m.slot() - 1, other = m.slot() - oparg;
    if (m.saved_exception_slot == top) {
      m.saved_exception_slot = other;
    } else if (m.saved_exception_slot == other) {
      m.saved_exception_slot = top;
    }
  }
  return Flow::kNext;
}

ALT_OP(LOAD_CONST) {
  m.push(Ref::share(PyTuple_GET_ITEM(m.constants, oparg)));
  return Flow::kNext;
}

template <class S>
ALT_INLINE Flow load_local(Machine<S>& m, int index) {
  PyObject* value = m.semantics.moved_local(&m.local(index));
  if (value == nullptr) [[unlikely]] {
    cpython::set_unbound(m.code, index);
    return Flow::kError;
  }
  m.push(Ref::share(value));
  return Flow::kNext;
}

template <class S>
ALT_INLINE void store_local(Machine<S>& m, int index) {
  PyObject* old = m.local(index);
  m.local(index) = *--m.sp;
  Py_XDECREF(old);
}

ALT_OP(LOAD_FAST) { return load_local(m, oparg); }
ALT_OP(LOAD_FAST_CHECK) { return load_local(m, oparg); }
ALT_OP(LOAD_CLOSURE) { return load_local(m, oparg); }

ALT_OP(LOAD_FAST_AND_CLEAR) {
  // The value moves: an unbound local is saved as NULL.
  if constexpr (S::kObserves) {
    if (m.local(oparg) != nullptr && m.semantics.local(&m.local(oparg)) == nullptr) return Flow::kError;
  }
  *m.sp++ = std::exchange(m.local(oparg), nullptr);
  return Flow::kNext;
}

ALT_OP(LOAD_FAST_LOAD_FAST) {
  const Flow flow = load_local(m, oparg >> 4);
  return flow == Flow::kNext ? load_local(m, oparg & 15) : flow;
}

ALT_OP(STORE_FAST) {
  store_local(m, oparg);
  return Flow::kNext;
}

ALT_OP(STORE_FAST_LOAD_FAST) {
  store_local(m, oparg >> 4);
  return load_local(m, oparg & 15);
}

ALT_OP(STORE_FAST_STORE_FAST) {
  store_local(m, oparg >> 4);
  store_local(m, oparg & 15);
  return Flow::kNext;
}

ALT_OP(DELETE_FAST) {
  if (m.local(oparg) == nullptr) {
    cpython::set_unbound(m.code, oparg);
    return Flow::kError;
  }
  Py_DECREF(std::exchange(m.local(oparg), nullptr));
  return Flow::kNext;
}

}  // namespace alternator
