#include "interpreter/frame_hook.h"

#include "interpreter/capture.h"
#include "interpreter/loop.h"
#include "py/forking.h"

#include <utility>

namespace alternator {

thread_local Control control;
thread_local FrameInterceptor frame_interceptor = nullptr;
GlobalControl global_control;

static _PyFrameEvalFunction chained = nullptr;
static int all_users = 0;
static thread_local int own_users = 0;
static SwitchedBy users() { return {all_users, own_users}; }

// The frame that was forwarded to the hook below ours and has not ended.
static thread_local cpython::Frame* forwarded __attribute__((tls_model("initial-exec"))) = nullptr;

// That hook may once have been installed on top of ours, and then passes the frame back.
static PyObject* forward(PyThreadState* ts, cpython::Frame* frame, int throwflag) {
  if (chained == nullptr || forwarded == frame) return run_default(ts, frame, throwflag);
  cpython::Frame* outer = std::exchange(forwarded, frame);
  PyObject* result = chained(ts, frame, throwflag);
  forwarded = outer;
  return result;
}

// In CPython's loop or in ours.
static PyObject* run_here(PyThreadState* ts, cpython::Frame* frame, int throwflag) {
  if (!global_control.interpret && control.running == 0) return forward(ts, frame, throwflag);
  if (cpython::tracing_active(ts) || cpython::is_micro(cpython::code_of(frame))) [[unlikely]] {
    return run_default(ts, frame, throwflag);
  }
  if (control.watch == nullptr && global_control.exit_every == 0) [[likely]] {
    Concrete concrete;
    return run(ts, frame, throwflag, concrete);
  }
  Probe probe;
  return run(ts, frame, throwflag, probe);
}

static PyObject* hook(PyThreadState* ts, cpython::Frame* frame, int throwflag) {
  if (control.pending != nullptr && is_pending(frame, throwflag)) [[unlikely]]
    return run_pending(ts, frame);
  if (control.evaluator != nullptr && !cpython::is_micro(cpython::code_of(frame)))
    return control.evaluator(ts, frame, throwflag);
  // A frame that the hook below ours passes back was intercepted already.
  if (frame_interceptor != nullptr && throwflag == 0 && forwarded != frame) [[unlikely]] {
    PyObject* result = nullptr;
    if (frame_interceptor(ts, frame, &result)) return result;
  }
  return run_here(ts, frame, throwflag);
}

PyObject* run_unintercepted(PyThreadState* ts, cpython::Frame* frame) { return run_here(ts, frame, 0); }

static PyObject* idle_hook(PyThreadState* ts, cpython::Frame* frame, int throwflag) {
  return run_default(ts, frame, throwflag);
}

void acquire_hook() {
  if (!users().begin()) return;
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  _PyFrameEvalFunction found = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  chained = found == _PyEval_EvalFrameDefault || found == hook ? nullptr : found;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, hook);
}

static void uninstall() {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  // Another hook may have been installed on top of ours: its owner must remove it.
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == hook) {
    _PyInterpreterState_SetEvalFrameFunc(interpreter, chained != nullptr ? chained : _PyEval_EvalFrameDefault);
  }
}

void release_hook() {
  if (all_users != 0 && users().end()) uninstall();
}

[[maybe_unused]] static const bool in_child = in_children([] {
  if (!global_control.interpret && users().keep_own()) uninstall();
});

bool hook_installed() { return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == hook; }

void set_idle_hook(bool on) {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  _PyFrameEvalFunction found = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  if (on && found == _PyEval_EvalFrameDefault) {
    _PyInterpreterState_SetEvalFrameFunc(interpreter, idle_hook);
  } else if (!on && found == idle_hook) {
    _PyInterpreterState_SetEvalFrameFunc(interpreter, _PyEval_EvalFrameDefault);
  }
}

Verdict Probe::at_boundary(const Position& position) {
  Watch* watch = control.watch;
  if (watch != nullptr && watch->action != Verdict::kGo && watch->code == cpython::code_of(position.frame)) {
    watch->seen++;
    if (--watch->countdown == 0) {
      watch->hit = true;
      return std::exchange(watch->action, Verdict::kGo);
    }
  }
  if (global_control.exit_every > 0 && ++control.exit_countdown >= global_control.exit_every) {
    control.exit_countdown = 0;
    return Verdict::kLeave;
  }
  return Verdict::kGo;
}

}  // namespace alternator
