// The frame hook (PEP 523): which loop a new frame runs in.
#pragma once

#include "interpreter/control.h"

namespace alternator {

// Reference-counted: the hook is installed while somebody needs it, and chains to the evaluator it found.
void acquire_hook();
void release_hook();
bool hook_installed();

// While it is set, every frame that begins on this thread is offered to it. True: it has run the frame, and `result` is
// what came of it, or null with an exception.
using FrameTaker = bool (*)(PyThreadState* ts, cpython::Frame* frame, PyObject** result);
extern thread_local FrameTaker frame_taker __attribute__((tls_model("initial-exec")));
// A frame that nobody takes: it goes to the evaluator that the hook found.
PyObject* run_untaken(PyThreadState* ts, cpython::Frame* frame);

// A hook that only forwards, for measuring what any hook costs.
void set_idle_hook(bool on);

}  // namespace alternator
