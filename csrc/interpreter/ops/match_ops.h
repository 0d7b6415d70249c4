// Structural pattern matching.
#pragma once

#include "interpreter/machine.h"

namespace alternator {

ALT_OP(GET_LEN) {
  const Py_ssize_t length = m.semantics.length(m.peek(1));
  if (length < 0) return Flow::kError;
  return m.push_or_fail(Ref::steal(PyLong_FromSsize_t(length)));
}

template <class S>
ALT_INLINE Flow push_type_flag(Machine<S>& m, unsigned long flag) {
  m.push(Ref::share((Py_TYPE(m.peek(1))->tp_flags & flag) != 0 ? Py_True : Py_False));
  return Flow::kNext;
}

ALT_OP(MATCH_MAPPING) { return push_type_flag(m, Py_TPFLAGS_MAPPING); }
ALT_OP(MATCH_SEQUENCE) { return push_type_flag(m, Py_TPFLAGS_SEQUENCE); }
ALT_OP(MATCH_KEYS) { return m.push_or_fail(m.semantics.match_keys(m.peek(2), m.peek(1))); }

ALT_OP(MATCH_CLASS) {
  Ref attributes = m.semantics.match_class(m.peek(3), m.peek(2), oparg, m.peek(1));
  if (!attributes && PyErr_Occurred()) return Flow::kError;
  return m.replace(3, attributes ? std::move(attributes) : Ref::share(Py_None));
}

}  // namespace alternator
