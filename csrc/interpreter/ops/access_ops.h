// Names, cells, attributes, items.
#pragma once

#include "interpreter/machine.h"

namespace alternator {

template <class S>
ALT_INLINE Borrowed require_locals(Machine<S>& m, const char* message, Borrowed name) {
  Borrowed locals = m.frame->f_locals;
  if (!locals) [[unlikely]]
    PyErr_Format(PyExc_SystemError, message, name.get());
  return locals;
}

ALT_OP(LOAD_NAME) {
  Borrowed name = m.name(oparg);
  Borrowed locals = require_locals(m, "no locals when loading %R", name);
  if (!locals) return Flow::kError;
  Ref value = m.semantics.load_local_name(locals, name);
  if (!value) {
    if (PyErr_Occurred()) return Flow::kError;
    value = m.semantics.load_global(m.frame->f_globals, m.frame->f_builtins, name);
  }
  return m.push_or_fail(std::move(value));
}

ALT_OP(STORE_NAME) {
  Borrowed locals = require_locals(m, "no locals found when storing %R", m.name(oparg));
  if (!locals || m.escape(1) < 0) return Flow::kError;
  return m.consume(1, m.semantics.store_local_name(locals, m.name(oparg), m.peek(1)));
}

ALT_OP(DELETE_NAME) {
  Borrowed name = m.name(oparg);
  Borrowed locals = require_locals(m, "no locals when deleting %R", name);
  if (!locals) return Flow::kError;
  if (m.semantics.delete_local_name(locals, name) < 0) {
    cpython::set_not_defined(name);
    return Flow::kError;
  }
  return Flow::kNext;
}

ALT_OP(LOAD_GLOBAL) {
  Ref value = m.semantics.load_global(m.frame->f_globals, m.frame->f_builtins, m.name(oparg >> 1));
  if (!value) return Flow::kError;
  if constexpr (cpython::kCallableFirst) {
    m.push(std::move(value));
    if (oparg & 1) m.push_null();
  } else {
    if (oparg & 1) m.push_null();
    m.push(std::move(value));
  }
  return Flow::kNext;
}

ALT_OP(STORE_GLOBAL) {
  if (m.escape(1) < 0) return Flow::kError;
  return m.consume(1, m.semantics.store_global(m.frame->f_globals, m.name(oparg), m.peek(1)));
}

ALT_OP(DELETE_GLOBAL) {
  if (m.semantics.delete_global(m.frame->f_globals, m.name(oparg)) < 0) {
    if (PyErr_ExceptionMatches(PyExc_KeyError)) cpython::set_not_defined(m.name(oparg));
    return Flow::kError;
  }
  return Flow::kNext;
}

ALT_OP(LOAD_LOCALS) {
  if (m.frame->f_locals == nullptr) {
    PyErr_SetString(PyExc_SystemError, "no locals");
    return Flow::kError;
  }
  m.push(Ref::share(m.frame->f_locals));
  return Flow::kNext;
}

ALT_OP(MAKE_CELL) {
  if constexpr (S::kObserves) {
    if (m.local(oparg) != nullptr && m.semantics.local(&m.local(oparg)) == nullptr) return Flow::kError;
    if (m.local(oparg) != nullptr && m.semantics.escape(m.local(oparg)) < 0) return Flow::kError;
  }
  PyObject* cell = PyCell_New(m.local(oparg));
  if (cell == nullptr) return Flow::kError;
  Py_XDECREF(std::exchange(m.local(oparg), cell));
  return Flow::kNext;
}

ALT_OP(COPY_FREE_VARS) {
  if (m.semantics.copy_free_variables(m.frame) < 0) return Flow::kError;
  PyObject* closure = cpython::function_of(m.frame)->func_closure;
  const int offset = m.code->co_nlocalsplus - oparg;
  for (int i = 0; i < oparg; i++) m.local(offset + i) = Py_NewRef(PyTuple_GET_ITEM(closure, i));
  return Flow::kNext;
}

template <class S>
ALT_INLINE Ref load_cell(Machine<S>& m, int index) {
  Ref value = m.semantics.load_cell(m.local(index));
  if (!value && !PyErr_Occurred()) cpython::set_unbound(m.code, index);
  return value;
}

ALT_OP(LOAD_DEREF) { return m.push_or_fail(load_cell(m, oparg)); }

ALT_OP(STORE_DEREF) {
  if (m.escape(1) < 0 || m.semantics.store_cell(m.local(oparg), Ref::share(m.peek(1))) < 0) return Flow::kError;
  m.drop(1);
  return Flow::kNext;
}

ALT_OP(DELETE_DEREF) {
  if (!load_cell(m, oparg) || m.semantics.store_cell(m.local(oparg), Ref()) < 0) return Flow::kError;
  return Flow::kNext;
}

// A class body sees its own mapping before the enclosing function's cell.
ALT_OP(LOAD_CLASSDEREF) {
  Ref value = m.semantics.load_local_name(m.frame->f_locals, PyTuple_GET_ITEM(m.code->co_localsplusnames, oparg));
  if (!value && PyErr_Occurred()) return Flow::kError;
  return m.push_or_fail(value ? std::move(value) : load_cell(m, oparg));
}

ALT_OP(LOAD_FROM_DICT_OR_DEREF) {
  Ref value = m.semantics.load_local_name(m.peek(1), PyTuple_GET_ITEM(m.code->co_localsplusnames, oparg));
  if (!value && PyErr_Occurred()) return Flow::kError;
  return m.replace(1, value ? std::move(value) : load_cell(m, oparg));
}

ALT_OP(LOAD_FROM_DICT_OR_GLOBALS) {
  Ref value = m.semantics.load_local_name(m.peek(1), m.name(oparg));
  if (!value && PyErr_Occurred()) return Flow::kError;
  if (!value) value = m.semantics.load_global(m.frame->f_globals, m.frame->f_builtins, m.name(oparg));
  return m.replace(1, std::move(value));
}

// The attribute is about to be called: a function and its owner avoid allocating a bound method.
template <class S>
ALT_INLINE Flow load_method(Machine<S>& m, Borrowed name) {
  Ref method;
  const bool unbound = m.semantics.get_method(m.peek(1), name, &method);
  if (!method) return Flow::kError;
  Ref owner = m.pop();
  if constexpr (cpython::kCallableFirst) {
    m.push(std::move(method));
    if (unbound) {
      m.push(std::move(owner));
    } else {
      m.push_null();
    }
  } else if (unbound) {
    m.push(std::move(method));
    m.push(std::move(owner));
  } else {
    m.push_null();
    m.push(std::move(method));
  }
  return Flow::kNext;
}

ALT_OP(LOAD_ATTR) {
  if constexpr (cpython::kLoadAttrHasMethodBit) {
    if (oparg & 1) return load_method(m, m.name(oparg >> 1));
    return m.replace(1, m.semantics.get_attribute(m.peek(1), m.name(oparg >> 1)));
  }
  return m.replace(1, m.semantics.get_attribute(m.peek(1), m.name(oparg)));
}

ALT_OP(LOAD_METHOD) { return load_method(m, m.name(oparg)); }

ALT_OP(LOAD_SUPER_ATTR) {
  // Always through a real super object: subclasses of super and shadowed names need no special case.
  PyObject* arguments[] = {nullptr, m.peek(2), m.peek(1)};
  Ref super = m.semantics.call(m.peek(3), arguments + 1, oparg & 2, nullptr);
  if (!super) return Flow::kError;
  Ref value = m.semantics.get_attribute(super, m.name(oparg >> 2));
  if (!value) return Flow::kError;
  m.drop(3);
  if constexpr (!cpython::kCallableFirst) {
    if (oparg & 1) m.push_null();
  }
  m.push(std::move(value));
  if constexpr (cpython::kCallableFirst) {
    if (oparg & 1) m.push_null();
  }
  return Flow::kNext;
}

ALT_OP(STORE_ATTR) {
  if constexpr (S::kObserves) {
    if (m.semantics.escape(m.peek(2)) < 0) return Flow::kError;
  }
  return m.consume(2, m.semantics.set_attribute(m.peek(1), m.name(oparg), m.peek(2)));
}

ALT_OP(DELETE_ATTR) { return m.consume(1, m.semantics.set_attribute(m.peek(1), m.name(oparg), nullptr)); }

ALT_OP(BINARY_SUBSCR) { return m.replace(2, m.semantics.get_item(m.peek(2), m.peek(1))); }

ALT_OP(STORE_SUBSCR) {
  if constexpr (S::kObserves) {
    if (m.semantics.escape(m.peek(3)) < 0) return Flow::kError;
  }
  return m.consume(3, m.semantics.set_item(m.peek(2), m.peek(1), m.peek(3)));
}

ALT_OP(DELETE_SUBSCR) { return m.consume(2, m.semantics.delete_item(m.peek(2), m.peek(1))); }

ALT_OP(BINARY_SLICE) {
  Ref slice = Ref::steal(PySlice_New(m.peek(2), m.peek(1), nullptr));
  if (!slice) return Flow::kError;
  return m.replace(3, m.semantics.get_item(m.peek(3), slice));
}

ALT_OP(STORE_SLICE) {
  Ref slice = Ref::steal(PySlice_New(m.peek(2), m.peek(1), nullptr));
  if (!slice) return Flow::kError;
  return m.consume(4, m.semantics.set_item(m.peek(3), slice, m.peek(4)));
}

}  // namespace alternator
