// CPython 3.11: functions of more than a line.
//
// Parts of this file follow the logic of CPython's ceval.c.
// Copyright (c) 2001-2023 Python Software Foundation; All Rights Reserved. See LICENSES/PSF-2.0.txt.
#include "cpython/micro.h"
#include "cpython/operations.h"

#include "cpython/digits.h"

namespace alternator::cpython {

int most_digits() { return PyInterpreterState_Get()->int_max_str_digits; }

static const MicroCode kMicroCodes[] = {
    {Micro::kAsyncGenWrap, {RESUME, 0, LOAD_FAST, 0, ASYNC_GEN_WRAP, 0, RETURN_VALUE, 0}, 8},
    {Micro::kPrepReraiseStar, {RESUME, 0, LOAD_FAST, 0, LOAD_FAST, 1, PREP_RERAISE_STAR, 0, RETURN_VALUE, 0}, 10},
};
std::span<const MicroCode> micro_codes() { return kMicroCodes; }

Ref yield_from_target(PyGenObject* generator) {
  if (generator->gi_frame_state == FRAME_CREATED || generator->gi_frame_state >= FRAME_CLEARED) return {};
  Frame* frame = frame_of_generator(generator);
  // A generator delegates if it is suspended before a RESUME that belongs to `yield from` or `await`.
  const CodeUnit next = frame->prev_instr[1];
  if (base_opcode(next) != RESUME || argument(next) < 2) return {};
  if (frame->stacktop <= frame->f_code->co_nlocalsplus) return {};
  return Ref::share(_PyFrame_StackPeek(frame));
}

bool revive_generator(PyGenObject* generator, PyFunctionObject* function, CodeUnit* next) {
  if (generator->gi_frame_state != FRAME_CLEARED) return false;
  Frame* frame = frame_of_generator(generator);
  PyCodeObject* code = generator->gi_code;
  Py_INCREF(function);
  _PyFrame_InitializeSpecials(frame, function, nullptr, code->co_nlocalsplus);
  Py_INCREF(code);  // the function's code may have been replaced by now
  Py_SETREF(frame->f_code, code);
  for (int i = 0; i < code->co_nlocalsplus; i++) frame->localsplus[i] = nullptr;
  frame->owner = FRAME_OWNED_BY_GENERATOR;
  frame->previous = nullptr;
  set_next_instruction(frame, next);
  generator->gi_frame_state = FRAME_SUSPENDED;
  return true;
}

int handle_breaker(PyThreadState* ts) {
  _ceval_state* ceval = &ts->interp->ceval;
  if (_Py_atomic_load_relaxed(&_PyRuntime.ceval.signals_pending) && PyErr_CheckSignals() < 0) return -1;
  if (_Py_atomic_load_relaxed(&ceval->pending.calls_to_do) && Py_MakePendingCalls() < 0) return -1;
  if (_Py_atomic_load_relaxed(&ceval->gil_drop_request)) PyEval_RestoreThread(PyEval_SaveThread());
  if (ts->async_exc != nullptr) {
    Ref exception = Ref::steal(ts->async_exc);
    ts->async_exc = nullptr;
    ceval->pending.async_exc = 0;
    // Retaking the GIL recomputes the eval breaker; the functions that do so are not exported.
    PyEval_RestoreThread(PyEval_SaveThread());
    PyErr_SetNone(exception.get());
    return -1;
  }
  return 0;
}

// We emit events only while unwinding: a frame that sees tracing switched on at an instruction boundary leaves to the
// default loop, which emits all others.
static int call_tracer(PyThreadState* ts, Py_tracefunc function, PyObject* self, int what, PyObject* argument) {
  if (ts->tracing) return 0;
  Ref frame = Ref::steal(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(ts)));
  if (!frame) return -1;
  const int old_what = ts->tracing_what;
  ts->tracing_what = what;
  PyThreadState_EnterTracing(ts);
  const int result = function(self, frame.as<PyFrameObject>(), what, argument);
  PyThreadState_LeaveTracing(ts);
  ts->tracing_what = old_what;
  return result;
}

void trace_exception(PyThreadState* ts, Frame*) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (value == nullptr) value = Py_NewRef(Py_None);
  PyErr_NormalizeException(&type, &value, &traceback);
  Ref argument = Ref::steal(PyTuple_Pack(3, type, value, traceback != nullptr ? traceback : Py_None));
  const int failed = argument ? call_tracer(ts, ts->c_tracefunc, ts->c_traceobj, PyTrace_EXCEPTION, argument.get()) : 0;
  if (failed == 0) {
    PyErr_Restore(type, value, traceback);
  } else {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
  }
}

static void trace_return_of_error(PyThreadState* ts, Py_tracefunc function, PyObject* self) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (call_tracer(ts, function, self, PyTrace_RETURN, nullptr) == 0) {
    PyErr_Restore(type, value, traceback);
  } else {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
  }
}

void trace_unwind(PyThreadState* ts, Frame*) {
  if (ts->c_tracefunc != nullptr) trace_return_of_error(ts, ts->c_tracefunc, ts->c_traceobj);
  if (ts->c_profilefunc != nullptr) trace_return_of_error(ts, ts->c_profilefunc, ts->c_profileobj);
}

}  // namespace alternator::cpython
