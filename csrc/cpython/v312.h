// CPython 3.12: frames, instructions, thread state. What is not here is in since_312.h.
#pragma once

#include "cpython/c_stack.h"
#include "cpython/truth_jump.h"
#include "py/ref.h"

// <stdatomic.h> is C: internal headers fall back to the compiler's atomics.
#undef HAVE_STD_ATOMIC
#include <frameobject.h>
#include <opcode.h>

#include "internal/pycore_code.h"
#include "internal/pycore_frame.h"
#include "internal/pycore_genobject.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_intrinsics.h"
#include "internal/pycore_pyerrors.h"
#include "internal/pycore_runtime.h"

extern "C" {
PyAPI_FUNC(PyObject*) _PyObject_LookupSpecial(PyObject*, PyObject*);
PyAPI_FUNC(int) _PyObject_GetMethod(PyObject*, PyObject*, PyObject**);
PyAPI_FUNC(int) _PyModuleSpec_IsInitializing(PyObject*);
}

namespace alternator {
// Opcodes of other versions that the continuations mention.
enum AbsentOpcode : int { CALL_KW = -1 };
}  // namespace alternator

namespace alternator::cpython {

using Frame = _PyInterpreterFrame;
using CodeUnit = _Py_CODEUNIT;

// --- what the opcodes of this version look like ---------------------------------------------------
// Only the default loop can clear a frame: it executes the instruction that ends one.
inline constexpr bool kDefaultLoopEnds = true;
// Calls lie on the stack as [NULL | method, callable | self, args...].
inline constexpr bool kCallableFirst = false;
// MAKE_FUNCTION takes defaults, annotations and closure from the stack.
inline constexpr bool kFunctionAttributesApart = false;
inline constexpr int kResumeMask = ~0;
// END_FOR.
inline constexpr int kLoopEndUnits = 1;
inline constexpr int kEndForPops = 2;
inline constexpr int kMergeCallableDepth = 2;
// JUMP_BACKWARD jumps, then handles signals.
inline constexpr bool kBreakerBeforeJump = false;
// `raise ... from Class` accepts any result of calling Class.
inline constexpr bool kChecksCause = false;
inline constexpr int compare_operator(int oparg) { return oparg >> 4; }
inline constexpr bool compare_to_bool(int) { return false; }

// --- instructions ---------------------------------------------------------------------------------
extern "C" const uint8_t* const alt_opcode_deopt;
extern "C" const uint8_t* const alt_opcode_caches;

constexpr int caches(int opcode) {
  switch (opcode) {
    case BINARY_OP:
    case BINARY_SUBSCR:
    case COMPARE_OP:
    case FOR_ITER:
    case LOAD_SUPER_ATTR:
    case SEND:
    case STORE_SUBSCR:
    case UNPACK_SEQUENCE:
      return 1;
    case CALL:
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
inline PyCodeObject* code_of(const Frame* frame) { return frame->f_code; }
inline CodeUnit* next_instruction(Frame* frame) { return frame->prev_instr + 1; }
inline void set_next_instruction(Frame* frame, CodeUnit* next) { frame->prev_instr = next - 1; }
inline void set_current_instruction(Frame* frame, CodeUnit* current) { frame->prev_instr = current; }
inline void set_throw_position(Frame* frame, CodeUnit* at) { frame->prev_instr = at; }
inline bool can_throw_at(PyCodeObject*, int) { return true; }
inline Frame*& current_frame(PyThreadState* ts) { return ts->cframe->current_frame; }
inline uint64_t monitoring_version(PyThreadState* ts) { return ts->interp->monitoring_version; }
inline bool is_suspended(const PyGenObject* generator) { return generator->gi_frame_state == FRAME_SUSPENDED; }
// A generator's frame suspends at a YIELD_VALUE.
inline void suspend(PyThreadState* ts, Frame* frame, int) {
  PyGenObject* generator = _PyFrame_GetGenerator(frame);
  generator->gi_frame_state = FRAME_SUSPENDED;
  ts->exc_info = generator->gi_exc_state.previous_item;
  generator->gi_exc_state.previous_item = nullptr;
  frame->previous = nullptr;
}
inline void release_frame(PyThreadState*, Frame*) {}
// The hook's result for a frame that has not started and whose locals were moved out: `result`, or null with an
// exception.
PyObject* end_frame(PyThreadState* ts, Frame* frame, PyObject* result);

// --- the eval breaker, tracing --------------------------------------------------------------------
inline bool breaker_set(PyThreadState* ts) { return _Py_atomic_load_relaxed(&ts->interp->ceval.eval_breaker) != 0; }
int handle_breaker(PyThreadState* ts);
// A frame that fails under a tracer is thrown into the default loop, which emits the events.
inline bool owes_exception_event(PyThreadState*) { return false; }
inline void trace_exception(PyThreadState*, Frame*) {}
inline void trace_unwind(PyThreadState*, Frame*) {}

// --- small things with another name in another version --------------------------------------------
inline PyObject* as_handled(PyObject* value) { return value; }
inline int lookup_attribute(PyObject* object, PyObject* name, PyObject** result) {
  return _PyObject_LookupAttr(object, name, result);
}
inline bool spec_is_initializing(PyObject* spec) { return _PyModuleSpec_IsInitializing(spec) != 0; }

}  // namespace alternator::cpython

#include "cpython/since_312.h"
