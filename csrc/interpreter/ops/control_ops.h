// Jumps, loops, returning.
#pragma once

#include "interpreter/machine.h"

namespace alternator {

ALT_OP(JUMP_FORWARD) {
  m.jump(oparg);
  return Flow::kNext;
}

ALT_OP(JUMP_BACKWARD) {
  if constexpr (cpython::kBreakerBeforeJump) {
    const Flow flow = m.handle_breaker();
    if (flow != Flow::kNext) return flow;
    m.jump(-oparg);
    return Flow::kNext;
  }
  m.jump(-oparg);
  return m.handle_breaker();
}

ALT_OP(JUMP_BACKWARD_NO_INTERRUPT) {
  m.jump(-oparg);
  return Flow::kNext;
}

// Jumps by `units` if the top's truth value is `wanted`; takes the top either way.
template <class S>
ALT_INLINE Flow pop_jump_if(Machine<S>& m, bool wanted, int units) {
  const Tri value = m.semantics.truth(m.peek(1));
  if (value.error()) [[unlikely]]
    return Flow::kError;
  m.drop(1);
  if (value.yes() != wanted) return Flow::kNext;
  m.jump(units);
  return units < 0 ? m.handle_breaker() : Flow::kNext;
}

template <class S>
ALT_INLINE Flow pop_jump_if_none(Machine<S>& m, bool wanted, int units) {
  const bool is_none = m.semantics.is(m.peek(1), Py_None);
  m.drop(1);
  if (is_none != wanted) return Flow::kNext;
  m.jump(units);
  return units < 0 ? m.handle_breaker() : Flow::kNext;
}

ALT_OP(POP_JUMP_IF_FALSE) { return pop_jump_if(m, false, oparg); }
ALT_OP(POP_JUMP_IF_TRUE) { return pop_jump_if(m, true, oparg); }
ALT_OP(POP_JUMP_IF_NONE) { return pop_jump_if_none(m, true, oparg); }
ALT_OP(POP_JUMP_IF_NOT_NONE) { return pop_jump_if_none(m, false, oparg); }
ALT_OP(POP_JUMP_FORWARD_IF_FALSE) { return pop_jump_if(m, false, oparg); }
ALT_OP(POP_JUMP_FORWARD_IF_TRUE) { return pop_jump_if(m, true, oparg); }
ALT_OP(POP_JUMP_FORWARD_IF_NONE) { return pop_jump_if_none(m, true, oparg); }
ALT_OP(POP_JUMP_FORWARD_IF_NOT_NONE) { return pop_jump_if_none(m, false, oparg); }
ALT_OP(POP_JUMP_BACKWARD_IF_FALSE) { return pop_jump_if(m, false, -oparg); }
ALT_OP(POP_JUMP_BACKWARD_IF_TRUE) { return pop_jump_if(m, true, -oparg); }
ALT_OP(POP_JUMP_BACKWARD_IF_NONE) { return pop_jump_if_none(m, true, -oparg); }
ALT_OP(POP_JUMP_BACKWARD_IF_NOT_NONE) { return pop_jump_if_none(m, false, -oparg); }

template <class S>
ALT_INLINE Flow jump_or_pop(Machine<S>& m, bool wanted, int units) {
  const Tri value = m.semantics.truth(m.peek(1));
  if (value.error()) return Flow::kError;
  if (value.yes() == wanted) {
    m.jump(units);
  } else {
    m.drop(1);
  }
  return Flow::kNext;
}

ALT_OP(JUMP_IF_FALSE_OR_POP) { return jump_or_pop(m, false, oparg); }
ALT_OP(JUMP_IF_TRUE_OR_POP) { return jump_or_pop(m, true, oparg); }

ALT_OP(GET_ITER) { return m.replace(1, m.semantics.get_iterator(m.peek(1))); }

ALT_OP(FOR_ITER) {
  Ref value = m.semantics.next(m.peek(1));
  if (value) {
    m.push(std::move(value));
    return Flow::kNext;
  }
  if (PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_StopIteration)) return Flow::kError;
    PyErr_Clear();
  }
  m.drop(1);
  m.jump(oparg + cpython::kLoopEndUnits);
  return Flow::kNext;
}

// Reached only where a generator ended under the default loop; FOR_ITER above jumps past it.
ALT_OP(END_FOR) {
  m.drop(cpython::kEndForPops);
  return Flow::kNext;
}

ALT_OP(RESUME) {
  const bool leaves =
      S::kMayLeave ? cpython::resume_needs_default_loop(m.ts, m.code) : cpython::resume_is_observed(m.ts, m.code);
  if (leaves) [[unlikely]]
    return Flow::kLeave;
  return (oparg & cpython::kResumeMask) < 2 ? m.handle_breaker() : Flow::kNext;
}

ALT_OP(RETURN_VALUE) {
  if (m.semantics.returning(m.frame, m.peek(1)) < 0) return Flow::kError;
  if constexpr (cpython::kDefaultLoopEnds) return Flow::kLeave;
  m.result = *--m.sp;
  return Flow::kReturn;
}

ALT_OP(RETURN_CONST) {
  if constexpr (cpython::kDefaultLoopEnds) return Flow::kLeave;
  m.result = Py_NewRef(PyTuple_GET_ITEM(m.constants, oparg));
  return Flow::kReturn;
}

}  // namespace alternator
