// Calls, functions, classes.
#pragma once

#include "interpreter/machine.h"

namespace alternator {

// A bound method in the callable's slot is replaced by its function and its self: the call allocates nothing.
template <class S>
ALT_INLINE void unpack_bound_method(Machine<S>& m, int arguments) {
  PyObject*& callable = m.peek(arguments + (cpython::kCallableFirst ? 2 : 1));
  PyObject*& empty = m.peek(arguments + (cpython::kCallableFirst ? 1 : 2));
  if (empty != nullptr || !Py_IS_TYPE(callable, &PyMethod_Type)) return;
  PyObject* method = callable;
  if constexpr (cpython::kCallableFirst) {
    callable = Py_NewRef(PyMethod_GET_FUNCTION(method));
    empty = Py_NewRef(PyMethod_GET_SELF(method));
  } else {
    empty = Py_NewRef(PyMethod_GET_FUNCTION(method));
    callable = Py_NewRef(PyMethod_GET_SELF(method));
  }
  Py_DECREF(method);
}

// The stack holds two slots for callable and self (one of them may be NULL), then the arguments.
template <class S>
ALT_INLINE Flow call_on_stack(Machine<S>& m, int arguments, Borrowed keyword_names) {
  const bool has_self = m.peek(arguments + (cpython::kCallableFirst ? 1 : 2)) != nullptr;
  const int total = arguments + (has_self ? 1 : 0);
  Borrowed callable = cpython::kCallableFirst ? m.peek(arguments + 2) : m.peek(total + 1);
  const Py_ssize_t keywords = keyword_names ? PyTuple_GET_SIZE(keyword_names.get()) : 0;
  Ref result = m.semantics.call(callable, m.sp - total, static_cast<size_t>(total - keywords), keyword_names);
  if (!result) [[unlikely]]
    return Flow::kError;
  m.drop(arguments + 2);
  m.push(std::move(result));
  return m.handle_breaker();
}

ALT_OP(KW_NAMES) {
  m.keyword_names = PyTuple_GET_ITEM(m.constants, oparg);
  return Flow::kNext;
}

ALT_OP(PRECALL) {
  if constexpr (!S::kObserves) unpack_bound_method(m, oparg);
  return Flow::kNext;
}

ALT_OP(CALL) {
  if constexpr (!S::kObserves && !cpython::kHasPrecall) unpack_bound_method(m, oparg);
  const Flow flow = call_on_stack(m, oparg, m.keyword_names);
  if (flow != Flow::kError) m.keyword_names = nullptr;  // a capture in an inner frame still needs them
  return flow;
}

ALT_OP(CALL_KW) {
  Ref keyword_names = m.pop();
  if constexpr (!S::kObserves) unpack_bound_method(m, oparg);
  const Flow flow = call_on_stack(m, oparg, keyword_names);
  if (flow == Flow::kError) m.push(std::move(keyword_names));
  return flow;
}

ALT_OP(CALL_FUNCTION_EX) {
  const int has_keywords = oparg & 1;
  Borrowed keywords = has_keywords ? Borrowed(m.peek(1)) : Borrowed();
  PyObject*& arguments = m.peek(1 + has_keywords);
  Borrowed callable = m.peek(2 + has_keywords + (cpython::kCallableFirst ? 1 : 0));
  if (!PyTuple_CheckExact(arguments)) {
    if (cpython::check_star_args(callable, arguments) < 0) return Flow::kError;
    Ref tuple = m.semantics.make_tuple(arguments);
    if (!tuple) return Flow::kError;
    Py_DECREF(std::exchange(arguments, tuple.release()));
  }
  Ref result = m.semantics.call_with_tuple(callable, arguments, keywords);
  if (!result) return Flow::kError;
  m.drop(3 + has_keywords);  // including the NULL beside the callable
  m.push(std::move(result));
  return m.handle_breaker();
}

ALT_OP(MAKE_FUNCTION) {
  Ref function = m.semantics.make_function(m.peek(1), m.frame->f_globals);
  if (!function) return Flow::kError;
  m.drop(1);
  if constexpr (!cpython::kFunctionAttributesApart) {
    auto* f = function.as<PyFunctionObject>();
    if (oparg & 8) f->func_closure = m.pop().release();
    if (oparg & 4) f->func_annotations = m.pop().release();
    if (oparg & 2) f->func_kwdefaults = m.pop().release();
    if (oparg & 1) f->func_defaults = m.pop().release();
  }
  m.push(std::move(function));
  return Flow::kNext;
}

ALT_OP(SET_FUNCTION_ATTRIBUTE) {
  Ref function = m.pop();
  auto* f = function.as<PyFunctionObject>();
  PyObject* value = m.pop().release();
  switch (oparg) {
    case 1:
      f->func_defaults = value;
      break;
    case 2:
      f->func_kwdefaults = value;
      break;
    case 4:
      f->func_annotations = value;
      break;
    default:
      f->func_closure = value;
      break;
  }
  m.push(std::move(function));
  return Flow::kNext;
}

ALT_OP(LOAD_BUILD_CLASS) { return m.push_or_fail(m.semantics.load_build_class(m.frame->f_builtins)); }

ALT_OP(SETUP_ANNOTATIONS) { return cpython::setup_annotations(m.frame->f_locals) < 0 ? Flow::kError : Flow::kNext; }

}  // namespace alternator
