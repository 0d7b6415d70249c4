// What controls the frames of a thread: nothing, our loop, a probe, a capture, a continuation.
#pragma once

#include "interpreter/frame_state.h"
#include "interpreter/semantics.h"

namespace alternator {

struct Stats {
  uint64_t instructions = 0, frames = 0, exits = 0;
};

// A request to stop at the n-th instruction that is executed in one code object.
struct Watch {
  PyCodeObject* code = nullptr;  // borrowed: the caller holds it
  uint64_t countdown = 0;
  uint64_t seen = 0;
  Verdict action = Verdict::kGo;
  bool hit = false;
  Chain* chain = nullptr;           // with kCapture: receives the frames
  cpython::Frame* below = nullptr;  // ... down to this one, which is not captured
};

// Runs a frame that was filled in the middle of its function.
using FrameRunner = PyObject* (*)(PyThreadState * ts, cpython::Frame* frame, int throwflag, const Entry& entry);

struct Control {
  int running = 0;              // >0: frames of this thread run in our loop
  uint64_t exit_countdown = 0;  // stress: instructions until the next exit to the default loop
  Watch* watch = nullptr;
  Chain* capturing = nullptr;  // set while a captured chain unwinds
  bool abandoning = false;     // ... while frames unwind without being recorded
  // Runs the frames of this thread and overrides the fields above; null: none.
  _PyFrameEvalFunction evaluator = nullptr;
  // The next frame of this function is to be filled from chain[index] instead of being run.
  Chain* pending = nullptr;
  size_t pending_index = 0;
  FrameRunner pending_runner = nullptr;  // null: the default loop
  Stats stats;
};
extern thread_local Control control __attribute__((tls_model("initial-exec")));

struct GlobalControl {
  bool interpret = false;   // every frame of every thread runs in our loop
  uint64_t exit_every = 0;  // stress: leave to the default loop at each n-th instruction
};
extern GlobalControl global_control;

// Plain CPython semantics, with exits and captures where the watch requests them.
struct Probe : Concrete {
  static constexpr bool kObserves = true;
  Verdict at_boundary(const Position& position);
};

}  // namespace alternator
