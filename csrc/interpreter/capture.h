// Capturing: a chain of frames becomes values, and is abandoned.
//
// Abandoning is unwinding with an exception that no handler sees. Every frame of ours records itself while it unwinds;
// a frame that receives the exception through native code which cannot be continued records that.
#pragma once

#include "interpreter/control.h"

namespace alternator {

// Frames are unwinding, and no handler may see it.
inline bool capture_in_flight() { return control.capturing != nullptr || control.abandoning; }

// Unwinds all frames of our loop on this thread without recording them, from wherever it is called.
void abandon_everything();
inline bool abandoned() { return control.abandoning; }
void finish_abandoning();

// Errors in a finalizer are reported to sys.unraisablehook instead of raised, so unwinding through one would be
// visible. False: the watch's chain records that, and the frame continues.
bool may_capture(const Position& position);
// A generator that is handling a GeneratorExit; and how its frame ends when everything is abandoned.
bool is_closing(const Position& position);
void end_closing();
// Called at an instruction boundary where this thread's watch requests a capture. Sets the unwinding exception.
void capture_innermost(const Position& position);
// Called where an instruction failed because of a capture in an inner frame. `waiting`: the frame was filled from this
// state, and its instruction has been waiting since.
void capture_outer(const Position& position, const FrameState* waiting);
// Called where native code swallowed the unwinding exception. Sets it again.
void capture_swallowed();

// Frames that are abandoned inside a handler restore the exception that their callers were handling.
void restore_handled_exception(PyThreadState* ts, cpython::Frame* frame, int saved_exception_slot);

// Ends the unwinding: the exception is dropped, the chain is complete.
void finish_capture();

// The local variable that the innermost frame of a chain stores to next, from the top of its stack; -1: its next
// instruction is another one.
int sets_next(const Chain& chain);

int init_capture();

// Why the chain cannot be continued; null: it can.
const std::string* cannot_continue(const Chain& chain);
// Continues a captured chain on new frames; `runner` runs each of them (null: the default loop). The values are moved
// into the frames, so that objects are destroyed when they would have been. Null with NotImplementedError where one of
// the continuations is kCannot.
Ref continue_chain(Chain& chain, FrameRunner runner);
// The same, where the next instruction of the innermost frame has raised this exception. In CPython's loop.
Ref continue_raising(Chain& chain, Ref exception);
// In our loop, as the thread's control says.
PyObject* run_in_loop(PyThreadState* ts, cpython::Frame* frame, int throwflag, const Entry& entry);
// A generator whose frame is cleared, as those of captured frames are. None of its code runs.
Ref make_cleared_generator(Borrowed function, Borrowed code);

// The hook's side of continuing: `frame` belongs to the function that control.pending waits for.
bool is_pending(cpython::Frame* frame, int throwflag);
PyObject* run_pending(PyThreadState* ts, cpython::Frame* frame);

}  // namespace alternator
