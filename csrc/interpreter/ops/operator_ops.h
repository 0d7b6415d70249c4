// Operators, comparisons, formatting.
#pragma once

#include "interpreter/binary_operations.h"
#include "interpreter/machine.h"

namespace alternator {

ALT_OP(UNARY_NEGATIVE) { return m.replace(1, m.semantics.unary(PyNumber_Negative, m.peek(1))); }
ALT_OP(UNARY_POSITIVE) { return m.replace(1, m.semantics.unary(PyNumber_Positive, m.peek(1))); }
ALT_OP(UNARY_INVERT) { return m.replace(1, m.semantics.unary(PyNumber_Invert, m.peek(1))); }

ALT_OP(UNARY_NOT) {
  const Tri value = m.semantics.truth(m.peek(1));
  if (value.error()) return Flow::kError;
  return m.replace_bool(1, value.no());
}

ALT_OP(TO_BOOL) {
  const Tri value = m.semantics.truth(m.peek(1));
  if (value.error()) return Flow::kError;
  return m.replace_bool(1, value.yes());
}

ALT_OP(BINARY_OP) { return m.replace(2, m.semantics.binary(kBinaryOperations[oparg].function, m.peek(2), m.peek(1))); }

ALT_OP(COMPARE_OP) {
  Ref value = m.semantics.compare(m.peek(2), m.peek(1), cpython::compare_operator(oparg));
  if (!value) return Flow::kError;
  if (cpython::compare_to_bool(oparg)) {
    const Tri truth = m.semantics.truth(value);
    if (truth.error()) return Flow::kError;
    return m.replace_bool(2, truth.yes());
  }
  return m.replace(2, std::move(value));
}

ALT_OP(IS_OP) { return m.replace_bool(2, m.semantics.is(m.peek(2), m.peek(1)) != (oparg != 0)); }

ALT_OP(CONTAINS_OP) {
  const Tri found = m.semantics.contains(m.peek(1), m.peek(2));
  if (found.error()) return Flow::kError;
  return m.replace_bool(2, found.yes() != (oparg != 0));
}

inline PyObject* (*conversion_of(int code))(PyObject*) {
  static constexpr PyObject* (*kConversions[])(PyObject*) = {nullptr, PyObject_Str, PyObject_Repr, PyObject_ASCII};
  return kConversions[code & 3];
}

ALT_OP(FORMAT_VALUE) {
  const int has_spec = (oparg & 4) != 0 ? 1 : 0;
  Borrowed spec = has_spec ? Borrowed(m.peek(1)) : Borrowed();
  return m.replace(1 + has_spec, m.semantics.format(m.peek(1 + has_spec), conversion_of(oparg), spec));
}

ALT_OP(CONVERT_VALUE) { return m.replace(1, m.semantics.convert(conversion_of(oparg), m.peek(1))); }
ALT_OP(FORMAT_SIMPLE) { return m.replace(1, m.semantics.format(m.peek(1), nullptr, nullptr)); }
ALT_OP(FORMAT_WITH_SPEC) { return m.replace(2, m.semantics.format(m.peek(2), nullptr, m.peek(1))); }

}  // namespace alternator
