// The eval loop, over a Semantics.
#pragma once

#include "interpreter/capture.h"
#include "interpreter/control.h"
#include "interpreter/ops/access_ops.h"
#include "interpreter/ops/call_ops.h"
#include "interpreter/ops/container_ops.h"
#include "interpreter/ops/control_ops.h"
#include "interpreter/ops/exception_ops.h"
#include "interpreter/ops/generator_ops.h"
#include "interpreter/ops/import_ops.h"
#include "interpreter/ops/intrinsic_ops.h"
#include "interpreter/ops/match_ops.h"
#include "interpreter/ops/operator_ops.h"
#include "interpreter/ops/stack_ops.h"

namespace alternator {

inline PyObject* run_default(PyThreadState* ts, cpython::Frame* frame, int throwflag) {
  return _PyEval_EvalFrameDefault(ts, frame, throwflag);
}

inline void add_traceback(PyThreadState* ts, cpython::Frame* frame) {
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "error return without exception set");
  if (cpython::is_incomplete(frame)) return;
  Ref object = Ref::steal(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(ts)));  // `frame` is the current one
  if (object) PyTraceBack_Here(object.as<PyFrameObject>());
  if (cpython::owes_exception_event(ts)) cpython::trace_exception(ts, frame);
}

// Runs a frame from its current instruction until it returns, yields or raises. The contract is that of
// _PyEval_EvalFrameDefault: an owned result, or null with an exception.
template <class S>
PyObject* run(PyThreadState* ts, cpython::Frame* frame, int throwflag, S& semantics, Entry entry = {}) {
  if (cpython::stack_exhausted(ts)) [[unlikely]]
    return cpython::run_exhausted(ts, frame, throwflag);
  cpython::Link link(ts, frame);
  if (!cpython::enter_recursion(ts)) [[unlikely]]
    return nullptr;

  PyCodeObject* const code = cpython::code_of(frame);
  Machine<S> m{ts,
               frame,
               code,
               code->co_names,
               code->co_consts,
               cpython::first_instruction(code),
               semantics,
               cpython::stack_pointer(frame),
               cpython::next_instruction(frame)};
  m.saved_exception_slot = entry.saved_exception_slot;
  if (m.next == m.first && entry.first_argument == nullptr && code->co_argcount > 0) {
    entry.first_argument = frame->localsplus[0];
  }
  cpython::CodeUnit* start = m.next;  // of the instruction, prefixes and KW_NAMES included
  int opcode = 0, oparg = 0;
  uint64_t executed = 0;
  Flow flow = Flow::kError;
  cpython::hide_stack(frame);

  if (throwflag) goto stopped;
  if constexpr (S::kObserves) {
    if (m.next == m.first && semantics.enter(frame) < 0) goto stopped;
  }

  for (;;) {
    if (m.keyword_names == nullptr) {  // KW_NAMES ... CALL is one instruction: no exit inside it
      start = m.next;
      if (link.tracing()) [[unlikely]]
        goto leave_early;
      if constexpr (S::kObserves) {
        if (capture_in_flight()) goto swallowed;
        const Verdict verdict = semantics.at_boundary(m.position(0, 0, entry.first_argument));
        if (verdict == Verdict::kLeave) {
          control.stats.exits++;
          goto leave;
        }
        if (verdict == Verdict::kFail) [[unlikely]] {
          flow = Flow::kError;
          goto stopped;
        }
        if (verdict == Verdict::kCapture && may_capture(m.position(0, 0, entry.first_argument))) goto capture;
      }
    }
    executed++;
    opcode = cpython::base_opcode(*m.next);
    oparg = cpython::argument(*m.next);
  dispatch:
    cpython::set_current_instruction(frame, m.next++);
    switch (opcode) {
#define ALT_PREFIX(...)
#define ALT_OPCODE(NAME, ...)           \
  case NAME:                            \
    m.next += cpython::caches(NAME);    \
    flow = op_##NAME(m, oparg);         \
    if (flow == Flow::kNext) [[likely]] \
      continue;                         \
    goto stopped;
#include "cpython/opcodes.def"
#undef ALT_OPCODE
      case EXTENDED_ARG:
        oparg = oparg << 8 | cpython::argument(*m.next);
        opcode = cpython::base_opcode(*m.next);
        goto dispatch;
      default:  // instrumented or unknown
        goto leave_early;
    }

  stopped:
    if constexpr (S::kObserves) {
      if ((flow == Flow::kError || flow == Flow::kUnwind) && !capture_in_flight()) {
        semantics.raising();
        if (capture_in_flight()) goto capture_outer;
      }
    }
    switch (flow) {
      case Flow::kNext:
        continue;
      case Flow::kLeave:
        if (opcode == RESUME) goto leave_early;
        goto leave;
      case Flow::kReturn:
      case Flow::kYield:
        cpython::set_stack_pointer(frame, m.sp);
        goto done;
      case Flow::kError:
        if constexpr (S::kObserves) {
          if (capture_in_flight()) goto capture_outer;
        }
        m.keyword_names = nullptr;
        if constexpr (cpython::kDefaultLoopEnds) {
          cpython::Handler handler;
          if (link.tracing() || !cpython::find_handler(code, m.index() - 1, &handler)) goto leave_throwing;
        }
        add_traceback(ts, frame);
        [[fallthrough]];
      case Flow::kUnwind: {
        cpython::Handler handler;
        if (!cpython::find_handler(code, m.index() - 1, &handler)) {
          m.drop(m.slot());
          cpython::set_stack_pointer(frame, m.sp);
          if (link.tracing()) cpython::trace_unwind(ts, frame);
          goto done;
        }
        m.drop(m.slot() - handler.depth);
        if (m.saved_exception_slot >= m.slot()) m.saved_exception_slot = -1;
        if (handler.push_lasti) {
          Ref index = Ref::steal(PyLong_FromLong(cpython::current_index(frame)));
          if (!index) {
            flow = Flow::kUnwind;
            goto stopped;
          }
          m.push(std::move(index));
        }
        m.push(cpython::take_raised());
        m.next = m.first + handler.target;
        continue;
      }
    }
  }

[[maybe_unused]] capture:  // this frame is the innermost one
  if constexpr (S::kObserves) {
    capture_innermost(m.position(0, 0, entry.first_argument));
    goto abandon;
  }
[[maybe_unused]] swallowed:  // native code swallowed the exception that unwinds a capture: nothing of this chain can be
                             // continued
  if constexpr (S::kObserves) {
    capture_swallowed();
    capture_outer(m.position(0, 0, entry.first_argument), nullptr);
    goto abandon;
  }
[[maybe_unused]] capture_outer:  // the frame that this one called was captured
  if constexpr (S::kObserves) {
    alternator::capture_outer(m.position(opcode, oparg, entry.first_argument), executed == 0 ? entry.waiting : nullptr);
  }
[[maybe_unused]] abandon:
  if constexpr (S::kObserves) {
    const bool closing = is_closing(m.position(0, 0, entry.first_argument));
    restore_handled_exception(ts, frame, m.saved_exception_slot);
    semantics.abandoned(frame);
    m.drop(m.slot());
    cpython::set_stack_pointer(frame, m.sp);
    flow = Flow::kError;
    // Anything else raised while a generator is destroyed would be shown to the user; the next frame to run notices.
    if (closing) end_closing();
    if constexpr (cpython::kDefaultLoopEnds) {
      // No handler covers the first instruction: the default loop unwinds and clears the frame.
      cpython::set_throw_position(frame, m.first);
      goto leave_throwing;
    }
  }

done:
  cpython::leave_recursion(ts);
  control.stats.instructions += executed;
  control.stats.frames++;
  link.unlink();
  if (flow != Flow::kYield) cpython::release_frame(ts, frame);
  return m.result;

leave_early:  // in the middle of the frame, because of a debugger or profiler
  if constexpr (!S::kMayLeave) {
    semantics.cannot_leave();
    flow = Flow::kError;
    goto stopped;
  }
leave:
  cpython::set_next_instruction(frame, start);
[[maybe_unused]] leave_throwing:
  cpython::set_stack_pointer(frame, m.sp);
  cpython::leave_recursion(ts);
  control.stats.instructions += executed;
  control.stats.frames++;
  link.unlink();
  return run_default(ts, frame, PyErr_Occurred() != nullptr ? 1 : 0);
}

}  // namespace alternator
