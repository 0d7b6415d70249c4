// Evaluates the frames that start on a tracing thread: those of the program, and those that are none of it.
#pragma once

#include "interpreter/control.h"

namespace alternator::trace {

class Tracer;

extern thread_local Tracer* current_tracer __attribute__((tls_model("initial-exec")));
// ts->tracing when the trace began: how deeply calls of audit hooks and trace functions (sys.addaudithook,
// sys.settrace) were nested.
extern thread_local int hook_depth __attribute__((tls_model("initial-exec")));

// The frame evaluator of a tracing thread.
PyObject* evaluate_traced(PyThreadState* ts, cpython::Frame* frame, int throwflag);
// Runs one of the trace's own frames.
PyObject* run_traced(PyThreadState* ts, cpython::Frame* frame, int throwflag, const Entry& entry);
// The rest of an instruction that began before the trace.
Ref call_traced(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);

}  // namespace alternator::trace
