// Whether an iterator over a deque would raise because the deque was mutated.
#pragma once

#include "py/error.h"

namespace alternator::cpython {

namespace deque_layout {

// As in Modules/_collectionsmodule.c, which does not export them; is_known() verifies the layout.
struct Deque {
  PyVarObject head;
  void *left_block, *right_block;
  Py_ssize_t left_index, right_index;
  size_t state;
};

struct Iterator {
  PyObject head;
  void* block;
  Py_ssize_t index;
  PyObject* deque;
  size_t state;
  Py_ssize_t left;
};

inline bool is_current(Borrowed iterator) {
  const auto* fields = iterator.as<Iterator>();
  return fields->state == reinterpret_cast<Deque*>(fields->deque)->state;
}

inline bool is_known(Borrowed deque_type) {
  Ref deque = checked(PyObject_CallFunction(deque_type.get(), "((iii))", 1, 2, 3));
  Ref iterator = checked(PyObject_GetIter(deque.get()));
  if (Py_TYPE(deque.get())->tp_basicsize < static_cast<Py_ssize_t>(sizeof(Deque)) ||
      Py_TYPE(iterator.get())->tp_basicsize != static_cast<Py_ssize_t>(sizeof(Iterator)) ||
      iterator.as<Iterator>()->deque != deque.get() || iterator.as<Iterator>()->left != 3)
    return false;
  const bool before = is_current(iterator);
  checked(PyObject_CallMethod(deque.get(), "rotate", "i", 1)).reset();
  return before && !is_current(iterator);
}

}  // namespace deque_layout

// Also false where this CPython's layout is not the one known here.
inline bool is_current_deque_iterator(Borrowed iterator, Borrowed deque_type) {
  static const bool known = deque_layout::is_known(deque_type);
  return known && deque_layout::is_current(iterator);
}

// Whether a deque that was built by appending `length` elements was mutated since. False where that is not known.
inline bool was_deque_changed(Borrowed deque, size_t length) {
  static const bool known = deque_layout::is_known(reinterpret_cast<PyObject*>(Py_TYPE(deque.get())));
  return known && deque.as<deque_layout::Deque>()->state != length;
}

}  // namespace alternator::cpython
