// Continuations: between a frame that waits in an instruction and the frame that this instruction called.
#pragma once

#include "interpreter/frame_state.h"
#include "interpreter/semantics.h"

namespace alternator {

// Determines how the frame at `position` waits for `inner`, and fills continuation, operands, cannot.
void classify_continuation(const Position& position, const FrameState& inner, FrameState* outer);

struct Delivery {
  PyObject** sp;
  cpython::CodeUnit* next;  // null: an exception is set, thrown at the waiting instruction
};
// Delivers the inner frame's result (null: its exception is set) to the waiting instruction of a filled frame.
Delivery deliver(const FrameState& outer, const FrameState& inner, cpython::Frame* frame, PyObject** sp, Ref result);

}  // namespace alternator
