// Frames as objects: `sys._getframe`, `locals()`, `exec`, and frames that are referenced from outside the trace.
#pragma once

#include "interpreter/control.h"
#include "lift/sources/source.h"
#include "trace/core/call.h"

#include <vector>

namespace alternator::trace {

class Tracer;

class FrameAccess {
 public:
  explicit FrameAccess(Tracer& tracer) : t(tracer) {}
  // The stand-ins of frames of the chain whose frame objects are referenced from outside the trace, if they have ended
  // in this trace.
  std::vector<Borrowed> ended_frames() const;
  // Builtins that inspect their calling frame. Null: it is none.
  Ref call(const Call& call);
  Ref get_from_frame(Borrowed frame, Borrowed name);
  Ref stand_in_of_frame(const FrameState& state, lift::Source* source);
  bool is_held_by_caller(cpython::Frame* frame) const;
  // Before each instruction, if there are such frames.
  bool may_finalize(const Position& position) const;
  std::vector<Ref> held_frames;  // stand-ins of frames whose frame objects are referenced from outside the trace

 private:
  bool is_running_here(cpython::Frame* wanted) const;
  Ref frame_above(cpython::Frame* frame, long depth);
  Ref locals_of(cpython::Frame* frame);
  Ref globals_for_code(Borrowed globals);
  Ref run_code(const Call& call);
  Tracer& t;
};

}  // namespace alternator::trace
