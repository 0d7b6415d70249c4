// Capturing: a chain of frames becomes values, and is abandoned.
//
// Abandoning is unwinding with an exception that no handler sees. Every frame of ours on the way out
// records itself; a frame that got it through native code which cannot be continued records that.
#pragma once

#include "interpreter/control.h"

namespace alternator {

inline bool capture_in_flight() { return control.capturing != nullptr; }

// Called at a boundary where the watch of this thread wants it. Sets the unwinding exception.
void capture_innermost(const Position& position);
// Called where an instruction failed because of a capture further in.
void capture_outer(const Position& position);
// Called where native code lost the unwinding exception. Sets it again.
void capture_swallowed();

// Frames that are abandoned inside a handler put back what their callers were handling.
void restore_handled_exception(PyThreadState* ts, cpython::Frame* frame, int saved_exception_slot);

// Ends the unwinding: the exception is dropped, the chain is complete.
void finish_capture();

int init_capture();

// Continues a captured chain on fresh frames, in our loop or in the default one.
// Null with NotImplementedError where one of its joints cannot be continued.
Ref continue_chain(PyThreadState* ts, const Chain& chain, bool in_loop);

// The hook's side of continuing: `frame` belongs to the function that control.pending waits for.
bool is_pending(cpython::Frame* frame, int throwflag);
PyObject* run_pending(PyThreadState* ts, cpython::Frame* frame);

}  // namespace alternator
