// A frame stopped at an instruction, as values: everything needed to continue it on a new frame.
#pragma once

#include "cpython/operations.h"
#include "py/values.h"

#include <memory>
#include <string>
#include <vector>

namespace alternator {

enum class Continuation : uint8_t {
#define ALT_CONTINUATION(kind, meaning) kind,
#include "interpreter/continuations.def"
#undef ALT_CONTINUATION
};
const char* continuation_name(Continuation continuation);
const char* continuation_meaning(Continuation continuation);

struct FrameState {
  FrameState() noexcept {}  // NOLINT(modernize-use-equals-default): `= default` would clear the inline slots
  Ref function;
  Ref code;
  int next = 0;     // index of the instruction to continue with
  int current = 0;  // index of the instruction that waits for the inner frame
  Values locals;
  Values stack;        // with the waiting instruction's operands
  int operands = 0;    // how many of them that instruction takes
  Ref locals_mapping;  // of class bodies and modules; of functions that called locals() (up to 3.12)
  Ref handled;         // the exception being handled; null: none
  // The slot of `stack` that holds the exception that this frame's callers handle; -1: the frame handles none.
  int saved_exception_slot = -1;
  Ref first_argument;  // the frame's first argument, even if it was rebound since
  Ref generator;       // the generator or coroutine object that the frame belongs to
  Ref keyword_names;   // of the waiting call
  Ref frame_object;    // the frame object, where a traceback or the like holds it: the new frame takes it over
  int attempt = 0;     // with kOperator and kComparison: which of the candidate methods the inner frame is
  Continuation continuation = Continuation::kNone;
  std::string cannot;  // with kCannot: why
};

// Innermost frame first.
using Chain = std::vector<FrameState>;

// What a frame that is resumed in the middle receives from its caller.
struct Entry {
  int saved_exception_slot = -1;
  PyObject* first_argument = nullptr;   // borrowed: its caller keeps it alive
  const FrameState* waiting = nullptr;  // it waited for an inner frame, which did not return
};

}  // namespace alternator
