// Frame objects: those of tracebacks, reconstructed or adopted by a resumed frame.
//
// Like objects.h, this header exposes no internals.
#pragma once

#include "py/ref.h"

#include <vector>

struct _PyInterpreterFrame;

namespace alternator::cpython {

// Gives a frame that PyFrame_New created the position that it would have after running up to the line. Such a frame has
// no closure cells, and reading its f_locals would crash: it gets empty cells.
void set_reached(PyFrameObject* frame, int line);
PyCodeObject* code_of(PyFrameObject* frame);  // borrowed
// The contents of its local variable slots, borrowed: values, cells, null.
std::vector<PyObject*> locals_of(PyFrameObject* frame);
void set_local(PyFrameObject* frame, size_t index, PyObject* value);
// The caller of a frame that has ended, borrowed; null: none, or the frame has not ended.
PyFrameObject* back_of(PyFrameObject* frame);
void set_back(PyFrameObject* frame, PyFrameObject* back);
// The frame has ended, or never ran: the frame object owns its locals.
bool is_over(PyFrameObject* frame);
// The frame is running, on some thread's stack.
bool is_running(PyFrameObject* frame);
// Whether an instruction ends its frame other than by an exception.
bool is_return(int opcode);
// Drops the locals of a frame that has ended. f_back stays.
void empty_frame(PyFrameObject* frame);
// A frame that is starting takes over the frame object `object`, whose own frame has ended: holders of that object then
// see the new frame.
void adopt_frame_object(_PyInterpreterFrame* frame, Ref object);

}  // namespace alternator::cpython
