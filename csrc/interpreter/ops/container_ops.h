// Building and unpacking containers.
#pragma once

#include "interpreter/machine.h"

namespace alternator {

ALT_OP(BUILD_TUPLE) {
  const int gathers = m.semantics.gather(m.sp - oparg, oparg);
  if (gathers < 0) return Flow::kError;
  PyObject* tuple = PyTuple_New(oparg);
  if (tuple == nullptr) return Flow::kError;
  m.sp -= oparg;  // the references move
  for (int i = 0; i < oparg; i++) PyTuple_SET_ITEM(tuple, i, m.sp[i]);
  *m.sp++ = tuple;
  if (gathers > 0) m.semantics.gathered(tuple);
  return Flow::kNext;
}

ALT_OP(BUILD_LIST) {
  const int gathers = m.semantics.gather(m.sp - oparg, oparg);
  if (gathers < 0) return Flow::kError;
  PyObject* list = PyList_New(oparg);
  if (list == nullptr) return Flow::kError;
  m.sp -= oparg;
  for (int i = 0; i < oparg; i++) PyList_SET_ITEM(list, i, m.sp[i]);
  *m.sp++ = list;
  if (gathers > 0) m.semantics.gathered(list);
  return Flow::kNext;
}

ALT_OP(BUILD_SET) {
  if (m.escape(oparg) < 0) return Flow::kError;
  Ref set = Ref::steal(PySet_New(nullptr));
  if (!set) return Flow::kError;
  for (int i = oparg; i > 0; i--) {
    if (PySet_Add(set.get(), m.peek(i)) < 0) return Flow::kError;
  }
  return m.replace(oparg, std::move(set));
}

ALT_OP(BUILD_MAP) {
  if (m.escape(2 * oparg) < 0) return Flow::kError;
  Ref dict = Ref::steal(_PyDict_NewPresized(oparg));
  if (!dict) return Flow::kError;
  for (int i = oparg; i > 0; i--) {
    if (PyDict_SetItem(dict.get(), m.peek(2 * i), m.peek(2 * i - 1)) < 0) return Flow::kError;
  }
  return m.replace(2 * oparg, std::move(dict));
}

ALT_OP(BUILD_CONST_KEY_MAP) {
  if (m.escape(oparg + 1) < 0) return Flow::kError;
  PyObject* keys = m.peek(1);
  if (!PyTuple_CheckExact(keys) || PyTuple_GET_SIZE(keys) != oparg) {
    PyErr_SetString(PyExc_SystemError, "bad BUILD_CONST_KEY_MAP keys argument");
    return Flow::kError;
  }
  Ref dict = Ref::steal(_PyDict_NewPresized(oparg));
  if (!dict) return Flow::kError;
  for (int i = 0; i < oparg; i++) {
    if (PyDict_SetItem(dict.get(), PyTuple_GET_ITEM(keys, i), m.peek(oparg + 1 - i)) < 0) return Flow::kError;
  }
  return m.replace(oparg + 1, std::move(dict));
}

ALT_OP(BUILD_STRING) { return m.replace(oparg, m.semantics.join(m.sp - oparg, oparg)); }

ALT_OP(BUILD_SLICE) {
  PyObject* step = oparg == 3 ? m.peek(1) : nullptr;
  return m.replace(oparg, Ref::steal(PySlice_New(m.peek(oparg), m.peek(oparg - 1), step)));
}

ALT_OP(LIST_APPEND) {
  if (m.escape(1) < 0) return Flow::kError;
  return m.consume(1, PyList_Append(m.peek(oparg + 1), m.peek(1)));
}

ALT_OP(SET_ADD) {
  if (m.escape(1) < 0) return Flow::kError;
  return m.consume(1, PySet_Add(m.peek(oparg + 1), m.peek(1)));
}

ALT_OP(MAP_ADD) {
  if (m.escape(2) < 0) return Flow::kError;
  return m.consume(2, PyDict_SetItem(m.peek(oparg + 2), m.peek(2), m.peek(1)));
}

ALT_OP(LIST_EXTEND) {
  Borrowed iterable = m.peek(1);
  const int status = m.semantics.list_extend(m.peek(oparg + 1), iterable);
  if (status < 0 && PyErr_ExceptionMatches(PyExc_TypeError) && iterable.type()->tp_iter == nullptr &&
      !PySequence_Check(iterable.get())) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "Value after * must be an iterable, not %.200s", iterable.type()->tp_name);
  }
  return m.consume(1, status);
}

ALT_OP(SET_UPDATE) { return m.consume(1, m.semantics.set_update(m.peek(oparg + 1), m.peek(1))); }

ALT_OP(DICT_UPDATE) {
  const int status = m.semantics.dict_update(m.peek(oparg + 1), m.peek(1));
  if (status < 0 && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Format(PyExc_TypeError, "'%.200s' object is not a mapping", Py_TYPE(m.peek(1))->tp_name);
  }
  return m.consume(1, status);
}

ALT_OP(DICT_MERGE) {
  const int status = m.semantics.dict_merge(m.peek(oparg + 1), m.peek(1));
  // Below the dict: the positional arguments, then the callable.
  if (status < 0) cpython::rewrite_kwargs_error(m.peek(oparg + 1 + cpython::kMergeCallableDepth), m.peek(1));
  return m.consume(1, status);
}

ALT_OP(LIST_TO_TUPLE) { return m.replace(1, Ref::steal(PyList_AsTuple(m.peek(1)))); }

// The values replace the sequence on the stack, the first one on top.
template <class S>
ALT_INLINE Flow unpack_onto_stack(Machine<S>& m, int before, int after) {
  const int total = before + (after >= 0 ? 1 + after : 0);
  Ref sequence = m.pop();
  PyObject** top = m.sp + total;
  if (!m.semantics.unpack(sequence, before, after, top)) {
    m.push(std::move(sequence));
    return Flow::kError;
  }
  m.sp = top;
  return Flow::kNext;
}

ALT_OP(UNPACK_SEQUENCE) {
  if constexpr (!S::kObserves) {
    PyObject* sequence = m.peek(1);
    PyObject** items = nullptr;
    if (PyTuple_CheckExact(sequence) && PyTuple_GET_SIZE(sequence) == oparg) {
      items = &PyTuple_GET_ITEM(sequence, 0);
    } else if (PyList_CheckExact(sequence) && PyList_GET_SIZE(sequence) == oparg) {
      items = &PyList_GET_ITEM(sequence, 0);
    }
    if (items != nullptr) [[likely]] {
      m.sp--;
      for (int i = oparg - 1; i >= 0; i--) *m.sp++ = Py_NewRef(items[i]);
      Py_DECREF(sequence);
      return Flow::kNext;
    }
  }
  return unpack_onto_stack(m, oparg, -1);
}

ALT_OP(UNPACK_EX) { return unpack_onto_stack(m, oparg & 0xFF, oparg >> 8); }

}  // namespace alternator
