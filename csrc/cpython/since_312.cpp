// Shared by 3.12 and 3.13: functions of more than a line.
#include "cpython/operations.h"

#include "cpython/digits.h"
#include "py/names.h"

namespace alternator::cpython {

int most_digits() { return PyInterpreterState_Get()->long_state.max_str_digits; }

bool revive_generator(PyGenObject* generator, PyFunctionObject* function, CodeUnit* next) {
  if (generator->gi_frame_state != FRAME_CLEARED) return false;
  Frame* frame = frame_of_generator(generator);
  PyCodeObject* code = code_of(frame);
  Py_INCREF(function);
  _PyFrame_Initialize(frame, function, nullptr, code, 0);
  Py_DECREF(code);  // the frame owns a reference already
  frame->owner = FRAME_OWNED_BY_GENERATOR;
  frame->previous = nullptr;
  set_next_instruction(frame, next);
  generator->gi_frame_state = FRAME_SUSPENDED;
  return true;
}

PyObject* run_exhausted(PyThreadState* ts, Frame* frame, int throwflag) {
  if (!c_stack_low()) return _PyEval_EvalFrameDefault(ts, frame, throwflag);
  const int remaining = ts->c_recursion_remaining;
  ts->c_recursion_remaining = 0;
  PyObject* result = _PyEval_EvalFrameDefault(ts, frame, throwflag);
  ts->c_recursion_remaining = remaining;
  return result;
}

Ref take_merge_conflict_key() {
  Ref error = take_raised();
  PyObject* arguments = error.as<PyBaseExceptionObject>()->args;
  if (PyTuple_Check(arguments) && PyTuple_GET_SIZE(arguments) == 1) return Ref::share(PyTuple_GET_ITEM(arguments, 0));
  set_raised(std::move(error));
  return {};
}

void set_import_error(const Ref& message, const Ref& module, const Ref& path, Borrowed name) {
  PyErr_SetImportError(message.get(), module.get(), path.get());
  Ref error = take_raised();
  if (!error) return;
  // The name serves "did you mean" only: failing to set it must not hide the ImportError.
  if (PyObject_SetAttr(error.get(), names::name_from, name.get()) < 0) PyErr_Clear();
  set_raised(std::move(error));
}

}  // namespace alternator::cpython
