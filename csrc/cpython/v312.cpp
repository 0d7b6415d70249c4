// CPython 3.12: functions of more than a line.
#include "cpython/micro.h"
#include "cpython/operations.h"

#include <vector>

namespace alternator::cpython {

static Micro plus(Micro base, int which) { return static_cast<Micro>(static_cast<int>(base) + which); }

std::span<const MicroCode> micro_codes() {
  static const std::vector<MicroCode> codes = [] {
    std::vector<MicroCode> made{{Micro::kHandleBreaker, {RESUME, 0, LOAD_FAST, 0, RETURN_VALUE, 0}, 6},
                                {Micro::kReturn, {RETURN_VALUE, 0}, 2, false}};
    for (unsigned char i = 1; i <= MAX_INTRINSIC_1; i++) {
      made.push_back({plus(Micro::kIntrinsic1, i), {RESUME, 0, LOAD_FAST, 0, CALL_INTRINSIC_1, i, RETURN_VALUE, 0}, 8});
    }
    for (unsigned char i = 1; i <= MAX_INTRINSIC_2; i++) {
      made.push_back({plus(Micro::kIntrinsic2, i),
                      {RESUME, 0, LOAD_FAST, 0, LOAD_FAST, 1, CALL_INTRINSIC_2, i, RETURN_VALUE, 0},
                      10});
    }
    return made;
  }();
  return codes;
}

Intrinsic1 intrinsic1(int oparg) {
  switch (oparg) {
    case INTRINSIC_IMPORT_STAR:
      return Intrinsic1::kImportStar;
    case INTRINSIC_STOPITERATION_ERROR:
      return Intrinsic1::kStopIterationError;
    case INTRINSIC_UNARY_POSITIVE:
      return Intrinsic1::kUnaryPositive;
    case INTRINSIC_LIST_TO_TUPLE:
      return Intrinsic1::kListToTuple;
    default:
      return Intrinsic1::kOther;
  }
}

Ref call_intrinsic1(PyThreadState*, int which, Borrowed value) {
  return run_micro(plus(Micro::kIntrinsic1, which), {value.get()});
}
Ref call_intrinsic2(PyThreadState*, int which, Borrowed left, Borrowed right) {
  return run_micro(plus(Micro::kIntrinsic2, which), {left.get(), right.get()});
}

Ref yield_from_target(PyGenObject* generator) {
  if (generator->gi_frame_state == FRAME_CREATED || generator->gi_frame_state >= FRAME_CLEARED) return {};
  Frame* frame = frame_of_generator(generator);
  // A generator delegates if it is suspended before a RESUME that belongs to `yield from` or `await`.
  const CodeUnit next = frame->prev_instr[1];
  const int opcode = base_opcode(next);
  if ((opcode != RESUME && opcode != INSTRUMENTED_RESUME) || argument(next) < 2) return {};
  if (frame->stacktop <= frame->f_code->co_nlocalsplus) return {};
  return Ref::share(_PyFrame_StackPeek(frame));
}

// Only the default loop can clear a frame. It runs code that returns, or fails, at once: without a RESUME, no line of
// it shows in a traceback.
PyObject* end_frame(PyThreadState* ts, Frame* frame, PyObject* result) {
  PyCodeObject* code = micro_code(Micro::kReturn);
  Py_SETREF(frame->f_code, reinterpret_cast<PyCodeObject*>(Py_NewRef(code)));
  set_next_instruction(frame, first_instruction(code));
  frame->stacktop = 0;
  if (result != nullptr) frame->localsplus[frame->stacktop++] = result;
  const Headroom headroom(ts);
  return _PyEval_EvalFrameDefault(ts, frame, result == nullptr ? 1 : 0);
}

int handle_breaker(PyThreadState* ts) {
  // Signal handlers receive the current frame, so they are called from here; so is a pending collection.
  if (PyErr_CheckSignals() < 0) return -1;
  if (!breaker_set(ts)) return 0;
  // Pending calls, the GIL and asynchronous exceptions: the functions are not exported, but any RESUME calls them.
  return run_micro(Micro::kHandleBreaker, {Py_None}) ? 0 : -1;
}

}  // namespace alternator::cpython
