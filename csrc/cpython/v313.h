// CPython 3.13: frames, instructions, thread state. What is not here is in since_312.h.
#pragma once

#ifdef Py_GIL_DISABLED
#error "alternator does not know the free-threaded build: frames, cells and the eval breaker differ there"
#endif

#include "cpython/c_stack.h"
#include "cpython/truth_jump.h"
#include "py/ref.h"

#include <frameobject.h>
#include <opcode.h>

#include "internal/pycore_ceval.h"
#include "internal/pycore_code.h"
#include "internal/pycore_dict.h"
#include "internal/pycore_frame.h"
#include "internal/pycore_genobject.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_intrinsics.h"
#include "internal/pycore_list.h"
#include "internal/pycore_object.h"
#include "internal/pycore_opcode_utils.h"
#include "internal/pycore_pyerrors.h"
#include "internal/pycore_runtime.h"
#include "internal/pycore_setobject.h"
#include "internal/pycore_unicodeobject.h"

namespace alternator::cpython {

using Frame = _PyInterpreterFrame;
using CodeUnit = _Py_CODEUNIT;

// --- what the opcodes of this version look like ---------------------------------------------------
// Our loop clears the frames that it ends: release_frame().
inline constexpr bool kDefaultLoopEnds = false;
// Calls lie on the stack as [callable, self | NULL, args...].
inline constexpr bool kCallableFirst = true;
// SET_FUNCTION_ATTRIBUTE sets a function's defaults, annotations and closure.
inline constexpr bool kFunctionAttributesApart = true;
inline constexpr int kResumeMask = RESUME_OPARG_LOCATION_MASK;
// END_FOR and POP_TOP.
inline constexpr int kLoopEndUnits = 2;
inline constexpr int kEndForPops = 1;
inline constexpr int kMergeCallableDepth = 3;
// JUMP_BACKWARD handles signals, then jumps.
inline constexpr bool kBreakerBeforeJump = true;
// `raise ... from Class` requires that calling Class returns an exception.
inline constexpr bool kChecksCause = true;
inline constexpr int compare_operator(int oparg) { return oparg >> 5; }
inline constexpr bool compare_to_bool(int oparg) { return (oparg & 16) != 0; }

// --- instructions ---------------------------------------------------------------------------------
extern "C" const uint8_t* const alt_opcode_deopt;
extern "C" const uint8_t* const alt_opcode_caches;

constexpr int caches(int opcode) {
  switch (opcode) {
    case BINARY_OP:
    case BINARY_SUBSCR:
    case COMPARE_OP:
    case CONTAINS_OP:
    case FOR_ITER:
    case JUMP_BACKWARD:
    case LOAD_SUPER_ATTR:
    case POP_JUMP_IF_FALSE:
    case POP_JUMP_IF_NONE:
    case POP_JUMP_IF_NOT_NONE:
    case POP_JUMP_IF_TRUE:
    case SEND:
    case STORE_SUBSCR:
    case UNPACK_SEQUENCE:
      return 1;
    case CALL:
    case TO_BOOL:
      return 3;
    case LOAD_GLOBAL:
    case STORE_ATTR:
      return 4;
    case LOAD_ATTR:
      return 9;
    default:
      return 0;
  }
}

// --- frames ---------------------------------------------------------------------------------------
inline PyCodeObject* code_of(const Frame* frame) { return reinterpret_cast<PyCodeObject*>(frame->f_executable); }
inline CodeUnit* next_instruction(Frame* frame) { return frame->instr_ptr; }
inline void set_next_instruction(Frame* frame, CodeUnit* next) { frame->instr_ptr = next; }
inline void set_current_instruction(Frame* frame, CodeUnit* current) { frame->instr_ptr = current; }
// The line is that of `at`, but the handler lookup starts one unit earlier: see can_throw_at().
inline void set_throw_position(Frame* frame, CodeUnit* at) { frame->instr_ptr = at; }
bool can_throw_at(PyCodeObject* code, int index);
inline Frame*& current_frame(PyThreadState* ts) { return ts->current_frame; }
inline uint64_t monitoring_version(PyThreadState* ts) {
  return _Py_atomic_load_uintptr_relaxed(&ts->eval_breaker) & ~static_cast<uintptr_t>(_PY_EVAL_EVENTS_MASK);
}
inline bool is_suspended(const PyGenObject* generator) {
  return generator->gi_frame_state == FRAME_SUSPENDED || generator->gi_frame_state == FRAME_SUSPENDED_YIELD_FROM;
}
// A generator's frame suspends at a YIELD_VALUE, whose oparg is 1 where it delegates.
inline void suspend(PyThreadState* ts, Frame* frame, int oparg) {
  PyGenObject* generator = _PyFrame_GetGenerator(frame);
  generator->gi_frame_state = static_cast<int8_t>(FRAME_SUSPENDED + oparg);
  frame->instr_ptr++;
  ts->exc_info = generator->gi_exc_state.previous_item;
  generator->gi_exc_state.previous_item = nullptr;
  frame->previous = nullptr;
}
// A frame returned or unwound, and is no longer the current one.
inline void release_frame(PyThreadState* ts, Frame* frame) { _PyEval_FrameClearAndPop(ts, frame); }
// The hook's result for a frame that has not started and whose locals were moved out: `result`, or null with an
// exception.
inline PyObject* end_frame(PyThreadState* ts, Frame* frame, PyObject* result) {
  release_frame(ts, frame);
  return result;
}

// --- the eval breaker, tracing --------------------------------------------------------------------
inline bool breaker_set(PyThreadState* ts) {
  return (_Py_atomic_load_uintptr_relaxed(&ts->eval_breaker) & _PY_EVAL_EVENTS_MASK) != 0;
}
inline int handle_breaker(PyThreadState* ts) { return _Py_HandlePending(ts); }
// The events that our unwinding must emit for a tracer that was switched on inside the failing instruction.
inline bool owes_exception_event(PyThreadState* ts) {
  return ts->interp->monitors.tools[PY_MONITORING_EVENT_RAISE] != 0;
}
inline void trace_exception(PyThreadState* ts, Frame* frame) { _PyEval_MonitorRaise(ts, frame, frame->instr_ptr); }
void trace_unwind(PyThreadState* ts, Frame* frame);

// --- small things with another name in another version --------------------------------------------
inline PyObject* as_handled(PyObject* value) { return value == Py_None ? nullptr : value; }
inline int lookup_attribute(PyObject* object, PyObject* name, PyObject** result) {
  return PyObject_GetOptionalAttr(object, name, result);
}
bool spec_is_initializing(PyObject* spec);

}  // namespace alternator::cpython

#include "cpython/since_312.h"
