// Frames as objects: those of tracebacks, made anew or taken over by a frame that goes on.
//
// Like objects.h, this header shows no internals.
#pragma once

#include "py/ref.h"

#include <vector>

struct _PyInterpreterFrame;

namespace alternator::cpython {

// A frame that PyFrame_New made stands where it would after it had run up to the line. It has no cells of a function
// either, and reading its f_locals would crash: it gets empty ones.
void set_reached(PyFrameObject* frame, int line);
PyCodeObject* code_of(PyFrameObject* frame);  // borrowed
// What stands in the slots of its variables, borrowed: values, cells, null.
std::vector<PyObject*> locals_of(PyFrameObject* frame);
void set_local(PyFrameObject* frame, size_t index, PyObject* value);
// The frame that an ended one was called from, borrowed; null: none, or it has not ended.
PyFrameObject* back_of(PyFrameObject* frame);
void set_back(PyFrameObject* frame, PyFrameObject* back);
// A frame that has ended, or never ran: its variables are its object's.
bool is_over(PyFrameObject* frame);
// It runs, on some thread's stack.
bool is_running(PyFrameObject* frame);
// Whether an instruction ends its frame, other than with an exception.
bool is_return(int opcode);
// The variables of a frame that is over are let go. What called it stays known.
void empty_frame(PyFrameObject* frame);
// A frame that begins becomes the one that `object`, which is over, stands for: whoever holds that holds this one.
void adopt_frame_object(_PyInterpreterFrame* frame, Ref object);

}  // namespace alternator::cpython
