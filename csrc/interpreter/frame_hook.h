// The frame hook (PEP 523): which loop a new frame runs in.
#pragma once

#include "interpreter/control.h"

namespace alternator {

// Reference-counted: the hook is installed while it has users, and chains to the evaluator that it replaced.
void acquire_hook();
void release_hook();
bool hook_installed();

// Frame interception: while this is set, every frame that starts on this thread is passed to it. True: it has run the
// frame, and `result` is the frame's result, or null with an exception.
using FrameInterceptor = bool (*)(PyThreadState* ts, cpython::Frame* frame, PyObject** result);
extern thread_local FrameInterceptor frame_interceptor __attribute__((tls_model("initial-exec")));
// Runs a frame that was not intercepted in the evaluator that the hook replaced.
PyObject* run_unintercepted(PyThreadState* ts, cpython::Frame* frame);

// A hook that only forwards, for measuring the cost of any hook.
void set_idle_hook(bool on);

}  // namespace alternator
