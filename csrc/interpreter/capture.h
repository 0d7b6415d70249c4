// Capturing: a chain of frames becomes values, and is abandoned.
//
// Abandoning is unwinding with an exception that no handler sees. Every frame of ours on the way out
// records itself; a frame that got it through native code which cannot be continued records that.
#pragma once

#include "interpreter/control.h"

namespace alternator {

// Frames are unwinding, and no handler may see it.
inline bool capture_in_flight() { return control.capturing != nullptr || control.abandoning; }

// Unwinds all frames of ours on this thread without recording them, from wherever it is called.
void abandon_everything();
inline bool abandoned() { return control.abandoning; }
void finish_abandoning();

// Errors of a finaliser are reported instead of raised: unwinding through one would show in sys.unraisablehook.
// False: the watch's chain says so, and the frame just goes on.
bool may_capture(const Position& position);
// A generator that handles a GeneratorExit; and how its frame ends when everything is abandoned.
bool is_closing(const Position& position);
void end_closing();
// Called at a boundary where the watch of this thread wants it. Sets the unwinding exception.
void capture_innermost(const Position& position);
// Called where an instruction failed because of a capture further in.
// `waiting`: the frame was filled from this state, and its instruction has been waiting since.
void capture_outer(const Position& position, const FrameState* waiting);
// Called where native code lost the unwinding exception. Sets it again.
void capture_swallowed();

// Frames that are abandoned inside a handler put back what their callers were handling.
void restore_handled_exception(PyThreadState* ts, cpython::Frame* frame, int saved_exception_slot);

// Ends the unwinding: the exception is dropped, the chain is complete.
void finish_capture();

// The variable that the innermost frame of a chain sets next, with what is on its stack; -1: it does something else.
int sets_next(const Chain& chain);

int init_capture();

// Why the chain cannot be continued; null: it can.
const std::string* cannot_continue(const Chain& chain);
// Continues a captured chain on fresh frames; `runner` runs each of them (null: the default loop). Its values move into
// them, so that objects die when they would have died. Null with NotImplementedError where one of its continuations
// cannot be continued.
Ref continue_chain(Chain& chain, FrameRunner runner);
// The same, where the instruction that its innermost frame stands before has raised this exception. In CPython's loop.
Ref continue_raising(Chain& chain, Ref exception);
// In our loop, under what the thread's control says.
PyObject* run_in_loop(PyThreadState* ts, cpython::Frame* frame, int throwflag, const Entry& entry);
// A generator whose frame is cleared, as those of captured frames are. Nothing of its code runs.
Ref make_cleared_generator(Borrowed function, Borrowed code);

// The hook's side of continuing: `frame` belongs to the function that control.pending waits for.
bool is_pending(cpython::Frame* frame, int throwflag);
PyObject* run_pending(PyThreadState* ts, cpython::Frame* frame);

}  // namespace alternator
