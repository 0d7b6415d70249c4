// Raising, handling, with blocks.
#pragma once

#include "cpython/micro.h"
#include "interpreter/machine.h"
#include "py/names.h"

namespace alternator {

// Where only the default loop can clear an unwinding frame, it must raise the exception itself.
template <class S>
ALT_INLINE bool leaves_frame(Machine<S>& m) {
  if constexpr (!cpython::kDefaultLoopEnds) return false;
  cpython::Handler handler;
  return !cpython::find_handler(m.code, m.index() - 1, &handler);
}

ALT_OP(RAISE_VARARGS) {
  if (oparg == 0 && leaves_frame(m)) return Flow::kLeave;
  for (int i = 1; i <= oparg; i++) {
    if (m.semantics.check_raise(m.peek(i)) < 0) return Flow::kError;
  }
  Ref cause = oparg == 2 ? m.pop() : Ref();
  Ref exception = oparg >= 1 ? m.pop() : Ref();
  if (exception && m.semantics.before_raise(&exception) < 0) return Flow::kError;
  const auto raised = cpython::raise_exception(m.ts, std::move(exception), std::move(cause));
  return raised == cpython::Raised::kReraised ? Flow::kUnwind : Flow::kError;
}

ALT_OP(RERAISE) {
  if (leaves_frame(m)) return Flow::kLeave;
  if (oparg != 0) {
    // The traceback shows the line that raised first.
    cpython::set_current_instruction(m.frame, m.first + PyLong_AsLong(m.peek(oparg + 1)));
  }
  cpython::set_raised(m.pop());
  return Flow::kUnwind;
}

ALT_OP(PUSH_EXC_INFO) {
  PyObject*& handled = cpython::handled_exception(m.ts);
  Ref exception = m.pop();
  m.note_saved_exception();
  m.push(handled != nullptr ? Ref::steal(handled) : Ref::share(Py_None));
  handled = Py_NewRef(exception.get());
  m.push(std::move(exception));
  return Flow::kNext;
}

ALT_OP(POP_EXCEPT) {
  PyObject* previous = cpython::as_handled(*--m.sp);
  if (m.saved_exception_slot == m.slot()) m.saved_exception_slot = -1;
  Py_XDECREF(std::exchange(cpython::handled_exception(m.ts), previous));
  return Flow::kNext;
}

ALT_OP(CHECK_EXC_MATCH) {
  const Tri matches = m.semantics.exception_matches(m.peek(2), m.peek(1));
  if (matches.error()) return Flow::kError;
  return m.replace_bool(1, matches.yes());
}

ALT_OP(CHECK_EG_MATCH) {
  // A group is split natively: report it to the semantics first, which may need to know what is read.
  if (m.semantics.check_raise(m.peek(2)) < 0) return Flow::kError;
  cpython::GroupMatch split = cpython::match_exception_group(m.peek(2), m.peek(1));
  if (!split.match) return Flow::kError;
  if (split.match.get() != Py_None) PyErr_SetHandledException(split.match.get());
  m.drop(2);
  m.push(std::move(split.rest));
  m.push(std::move(split.match));
  return Flow::kNext;
}

ALT_OP(PREP_RERAISE_STAR) {
  if (m.semantics.check_raise(m.peek(2)) < 0) return Flow::kError;
  for (Py_ssize_t i = 0; PyList_CheckExact(m.peek(1)) && i < PyList_GET_SIZE(m.peek(1)); i++) {
    if (m.semantics.check_raise(PyList_GET_ITEM(m.peek(1), i)) < 0) return Flow::kError;
  }
  return m.replace(2, cpython::run_micro(cpython::Micro::kPrepReraiseStar, {m.peek(2), m.peek(1)}));
}

ALT_OP(LOAD_ASSERTION_ERROR) {
  m.push(Ref::share(PyExc_AssertionError));
  return Flow::kNext;
}

// Finds both methods before calling the first, as the language defines.
template <class S>
ALT_INLINE Flow enter_with(Machine<S>& m, Borrowed enter_name, Borrowed exit_name, const char* no_enter,
                           const char* no_exit) {
  Borrowed manager = m.peek(1);
  Ref enter = m.semantics.special_method(manager, enter_name);
  if (!enter) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, no_enter, manager.type()->tp_name);
    return Flow::kError;
  }
  Ref exit = m.semantics.special_method(manager, exit_name);
  if (!exit) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, no_exit, manager.type()->tp_name);
    return Flow::kError;
  }
  Py_DECREF(std::exchange(m.peek(1), exit.release()));
  PyObject* no_arguments[] = {nullptr};
  return m.push_or_fail(m.semantics.call(enter, no_arguments + 1, 0, nullptr));
}

ALT_OP(BEFORE_WITH) {
  return enter_with(m, names::__enter__, names::__exit__,
                    "'%.200s' object does not support the context manager protocol",
                    "'%.200s' object does not support the context manager protocol (missed __exit__ method)");
}

ALT_OP(BEFORE_ASYNC_WITH) {
  return enter_with(
      m, names::__aenter__, names::__aexit__,
      "'%.200s' object does not support the asynchronous context manager protocol",
      "'%.200s' object does not support the asynchronous context manager protocol (missed __aexit__ method)");
}

ALT_OP(WITH_EXCEPT_START) {
  PyObject* exception = m.peek(1);
  Ref type = m.semantics.class_of(exception);
  Ref traceback = type ? m.semantics.traceback_of(exception) : Ref();
  if (!type || (!traceback && PyErr_Occurred())) return Flow::kError;
  PyObject* arguments[] = {nullptr, type.get(), exception, traceback ? traceback.get() : Py_None};
  return m.push_or_fail(m.semantics.call(m.peek(4), arguments + 1, 3, nullptr));
}

}  // namespace alternator
