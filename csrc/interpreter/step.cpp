#include "interpreter/step.h"

#include "interpreter/capture.h"
#include "interpreter/frame_hook.h"
#include "interpreter/loop.h"

namespace alternator {

namespace {

struct Step {
  cpython::Frame* below;  // the calling frame
  bool begun = false;
  Watch watch;
  Step* outer;
};
thread_local Step* current_step __attribute__((tls_model("initial-exec"))) = nullptr;

bool may_stop(const Step& step, const Position& position) {
  for (cpython::Frame* frame = position.frame; frame != nullptr && frame != step.below; frame = frame->previous) {
    if (cpython::owned_by_generator(frame)) return false;
    PyCodeObject* code = cpython::code_of(frame);
    if (PyCode_Check(reinterpret_cast<PyObject*>(code)) && (code->co_flags & CO_OPTIMIZED) == 0) return false;
  }
  return true;
}

struct Stepping : Concrete {
  static constexpr bool kObserves = true;
  Step& step;
  explicit Stepping(Step& of) : step(of) {}
  Verdict at_boundary(const Position& position) {
    if (control.pending != nullptr) return Verdict::kGo;  // the frames down to the innermost one are being filled
    if (!step.begun) {
      step.begun = true;
      return Verdict::kGo;
    }
    if (!may_stop(step, position)) return Verdict::kGo;
    control.watch = &step.watch;
    return Verdict::kCapture;
  }
};

PyObject* run_stepping(PyThreadState* ts, cpython::Frame* frame, int throwflag, const Entry& entry) {
  Stepping stepping(*current_step);
  return run(ts, frame, throwflag, stepping, entry);
}

}  // namespace

bool step(Chain& chain, Chain* stopped, Ref* result) {
  PyThreadState* ts = PyThreadState_Get();
  Step step{cpython::current_frame(ts), false, {}, current_step};
  step.watch.chain = stopped;
  step.watch.below = step.below;
  Watch* const watch = control.watch;
  current_step = &step;
  acquire_hook();
  *result = continue_chain(chain, run_stepping);
  release_hook();
  current_step = step.outer;
  control.watch = watch;
  if (control.capturing != stopped) return false;
  finish_capture();
  return true;
}

}  // namespace alternator
