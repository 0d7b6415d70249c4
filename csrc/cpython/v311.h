// CPython 3.11: frames, instructions, thread state.
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
#include "internal/pycore_pyerrors.h"
#include "internal/pycore_runtime.h"

extern "C" {
PyAPI_FUNC(int) _Py_CheckRecursiveCall(PyThreadState*, const char*);
PyAPI_FUNC(PyObject*) _PyObject_LookupSpecial(PyObject*, PyObject*);
PyAPI_FUNC(int) _PyObject_GetMethod(PyObject*, PyObject*, PyObject**);
}

namespace alternator {
// Opcodes of other versions that the continuations mention.
enum AbsentOpcode : int { CALL_KW = -1, LOAD_SUPER_ATTR = -2 };
}  // namespace alternator

namespace alternator::cpython {

using Frame = _PyInterpreterFrame;
using CodeUnit = _Py_CODEUNIT;

// --- what the opcodes of this version look like -------------------------------------------------
// Whether only the default loop can clear a frame, so that it must execute the instruction that ends one. Here the
// hook's caller clears frames.
inline constexpr bool kDefaultLoopEnds = false;
// Calls lie on the stack as [NULL | method, callable | self, args...].
inline constexpr bool kCallableFirst = false;
// PRECALL, not CALL, unpacks a bound method.
inline constexpr bool kHasPrecall = true;
// MAKE_FUNCTION takes defaults, annotations and closure from the stack (3.13: SET_FUNCTION_ATTRIBUTE does).
inline constexpr bool kFunctionAttributesApart = false;
// LOAD_ATTR has no "method" bit: LOAD_METHOD does that.
inline constexpr bool kLoadAttrHasMethodBit = false;
// The bits of RESUME's oparg that give its location: below 2, signals are handled there.
inline constexpr int kResumeMask = ~0;
// Instructions after a loop that an exhausted FOR_ITER jumps over (END_FOR, and POP_TOP from 3.13 on).
inline constexpr int kLoopEndUnits = 0;
// How many values END_FOR pops; the opcode exists from 3.12 on.
inline constexpr int kEndForPops = 0;
// Whether JUMP_BACKWARD handles signals before it jumps: their line and handler are then those of the jump.
inline constexpr bool kBreakerBeforeJump = false;
// Whether `raise ... from Class` requires that calling Class returns an exception.
inline constexpr bool kChecksCause = false;
// How far below the dict of a `**` merge the callable lies.
inline constexpr int kMergeCallableDepth = 2;
// From 3.12 on, SEND leaves the receiver on the stack when it ends, and END_SEND pops it.
inline constexpr bool kSendKeepsReceiver = false;
inline constexpr int compare_operator(int oparg) { return oparg; }
inline constexpr bool compare_to_bool(int) { return false; }

// --- instructions ---------------------------------------------------------------------------------
extern "C" const uint8_t* const alt_opcode_deopt;   // specialized or instrumented -> base opcode
extern "C" const uint8_t* const alt_opcode_caches;  // inline cache entries after a base opcode

// Inline cache entries by base opcode, as a constant; a test compares them with the interpreter's table.
constexpr int caches(int opcode) {
  switch (opcode) {
    case BINARY_OP:
    case PRECALL:
    case STORE_SUBSCR:
    case UNPACK_SEQUENCE:
      return 1;
    case COMPARE_OP:
      return 2;
    case BINARY_SUBSCR:
    case CALL:
    case LOAD_ATTR:
    case STORE_ATTR:
      return 4;
    case LOAD_GLOBAL:
      return 5;
    case LOAD_METHOD:
      return 10;
    default:
      return 0;
  }
}

constexpr TruthJump truth_jump(int opcode, int oparg) {
  switch (opcode) {
    case POP_JUMP_FORWARD_IF_FALSE:
      return {true, false, false, oparg};
    case POP_JUMP_FORWARD_IF_TRUE:
      return {true, true, false, oparg};
    case POP_JUMP_BACKWARD_IF_FALSE:
      return {true, false, false, -oparg};
    case POP_JUMP_BACKWARD_IF_TRUE:
      return {true, true, false, -oparg};
    case JUMP_IF_FALSE_OR_POP:
      return {true, false, true, oparg};
    case JUMP_IF_TRUE_OR_POP:
      return {true, true, true, oparg};
    default:
      return {};
  }
}
constexpr bool is_load_method(int opcode) { return opcode == LOAD_METHOD; }
constexpr bool is_unary_positive(int, int) { return false; }  // an opcode of its own

inline int base_opcode(CodeUnit unit) { return alt_opcode_deopt[_Py_OPCODE(unit)]; }
inline int argument(CodeUnit unit) { return _Py_OPARG(unit); }
inline CodeUnit* first_instruction(PyCodeObject* code) { return _PyCode_CODE(code); }

// --- frames -----------------------------------------------------------------------------------------
inline PyCodeObject* code_of(const Frame* frame) { return frame->f_code; }
inline PyFunctionObject* function_of(const Frame* frame) { return frame->f_func; }
inline PyObject** stack_base(Frame* frame) { return _PyFrame_Stackbase(frame); }
inline PyObject** stack_pointer(Frame* frame) { return _PyFrame_GetStackPointer(frame); }
inline void set_stack_pointer(Frame* frame, PyObject** sp) { _PyFrame_SetStackPointer(frame, sp); }
// While a frame runs, the loop owns its value stack: nobody else may read it.
inline void hide_stack(Frame* frame) { frame->stacktop = -1; }
// The next instruction to execute.
inline CodeUnit* next_instruction(Frame* frame) { return frame->prev_instr + 1; }
inline void set_next_instruction(Frame* frame, CodeUnit* next) { frame->prev_instr = next - 1; }
// The instruction being executed (line numbers and `f_lasti` come from it).
inline void set_current_instruction(Frame* frame, CodeUnit* current) { frame->prev_instr = current; }
inline int current_index(Frame* frame) { return _PyInterpreterFrame_LASTI(frame); }
// Sets the instruction at which a frame entered with throwflag=1 raises.
inline void set_throw_position(Frame* frame, CodeUnit* at) { frame->prev_instr = at; }
// Whether an exception thrown at an instruction finds the handler that covers that instruction.
inline bool can_throw_at(PyCodeObject*, int) { return true; }
inline bool is_incomplete(Frame* frame) { return _PyFrame_IsIncomplete(frame); }
inline bool owned_by_generator(const Frame* frame) { return frame->owner == FRAME_OWNED_BY_GENERATOR; }
inline PyGenObject* generator_of(Frame* frame) { return _PyFrame_GetGenerator(frame); }
inline Frame* frame_of_generator(PyGenObject* generator) { return reinterpret_cast<Frame*>(generator->gi_iframe); }
// Gives a finished generator a frame again, empty and suspended at `next`: the generator object is reused. False: it
// still has a frame.
bool revive_generator(PyGenObject* generator, PyFunctionObject* function, CodeUnit* next);
inline bool is_suspended(const PyGenObject* generator) { return generator->gi_frame_state == FRAME_SUSPENDED; }
// A generator's frame suspends at a YIELD_VALUE.
inline void suspend(PyThreadState*, Frame* frame, int) {
  _PyFrame_GetGenerator(frame)->gi_frame_state = FRAME_SUSPENDED;
}
// A frame returned or unwound, and is no longer the current one: from 3.12 on its evaluator clears it.
inline void release_frame(PyThreadState*, Frame*) {}
// The hook's result for a frame that has not started and whose locals were moved out: `result`, or null with an
// exception.
inline PyObject* end_frame(PyThreadState*, Frame*, PyObject* result) { return result; }
inline Frame* current_frame(PyThreadState* ts) { return ts->cframe->current_frame; }

// Makes a frame the current one for the lifetime of this object (tracebacks, sys._getframe, recursion count).
class Link {
 public:
  Link(PyThreadState* ts, Frame* frame) : ts_(ts) {
    _PyCFrame* previous = ts->cframe;
    cframe_.use_tracing = previous->use_tracing;
    cframe_.previous = previous;
    ts->cframe = &cframe_;
    frame->is_entry = true;
    frame->previous = previous->current_frame;
    cframe_.current_frame = frame;
  }
  ~Link() { unlink(); }
  void unlink() {
    if (ts_ == nullptr) return;
    ts_->cframe = cframe_.previous;
    ts_->cframe->use_tracing = cframe_.use_tracing;
    ts_ = nullptr;
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  // sys.settrace or setprofile was switched on while the frame ran.
  bool tracing() const { return cframe_.use_tracing != 0; }

 private:
  PyThreadState* ts_;
  _PyCFrame cframe_;
};

// Instrumented code is run by the default loop (3.12+).
inline bool resume_needs_default_loop(PyThreadState*, PyCodeObject*) { return false; }
inline bool resume_is_observed(PyThreadState*, PyCodeObject*) { return false; }
// Tracing is active when a frame is entered: the default loop runs such frames.
constexpr bool kTracersInstrument = false;  // whether sys.settrace and the like rewrite code
inline bool tracing_active(PyThreadState* ts) { return ts->cframe->use_tracing != 0; }
// The event that our unwinding must emit for a tracer that was switched on inside the failing instruction.
void trace_exception(PyThreadState* ts, Frame* frame);
void trace_unwind(PyThreadState* ts, Frame* frame);
inline bool owes_exception_event(PyThreadState* ts) { return ts->c_tracefunc != nullptr; }

// --- recursion and the eval breaker -------------------------------------------------------------
// False: the recursion limit is reached, and RecursionError is set.
inline bool enter_recursion(PyThreadState* ts) {
  if (c_stack_low()) [[unlikely]] {
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded (the C stack is nearly used up)");
    return false;
  }
  if (ts->recursion_remaining-- > 0) [[likely]]
    return true;
  return _Py_CheckRecursiveCall(ts, "") == 0;  // restores the count itself when it raises
}
inline void leave_recursion(PyThreadState* ts) { ts->recursion_remaining++; }
// True: this frame must be run by the default loop, which raises RecursionError.
inline bool stack_exhausted(PyThreadState*) { return false; }
inline PyObject* run_exhausted(PyThreadState* ts, Frame* frame, int throwflag) {
  return _PyEval_EvalFrameDefault(ts, frame, throwflag);
}
// Extra recursion depth for an internal call that must not count against the program.
class Headroom {
 public:
  explicit Headroom(PyThreadState* ts) : ts_(ts) { ts->recursion_remaining += kCalls; }
  ~Headroom() { ts_->recursion_remaining -= kCalls; }
  Headroom(const Headroom&) = delete;
  Headroom& operator=(const Headroom&) = delete;

 private:
  static constexpr int kCalls = 4;
  PyThreadState* const ts_;
};
inline bool breaker_set(PyThreadState* ts) { return _Py_atomic_load_relaxed(&ts->interp->ceval.eval_breaker) != 0; }
// Signals, pending calls, the GIL, asynchronous exceptions. -1: an exception is set.
int handle_breaker(PyThreadState* ts);

// --- exceptions ------------------------------------------------------------------------------------
// The exception being handled (sys.exc_info()) is thread state.
inline PyObject*& handled_exception(PyThreadState* ts) { return ts->exc_info->exc_value; }
// The value that POP_EXCEPT stores: 3.13 never stores None there.
inline PyObject* as_handled(PyObject* value) { return value; }
// The raised exception, normalized and with its traceback, taken out of the error indicator.
inline Ref take_raised() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyException_SetTraceback(value, traceback != nullptr ? traceback : Py_None);
  Py_XDECREF(traceback);
  Py_XDECREF(type);
  return Ref::steal(value);
}
inline void set_raised(Ref exception) {
  PyObject* value = exception.release();
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(value))), value, PyException_GetTraceback(value));
}

// The duplicate key of a failed `**kwargs` merge, its KeyError cleared; null leaves the error as it is. The merge sets
// the key as a bare one-tuple; a KeyError from user code is an instance by now.
inline Ref take_merge_conflict_key() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (value != nullptr && PyTuple_Check(value) && PyTuple_GET_SIZE(value) == 1) {
    Ref key = Ref::share(PyTuple_GET_ITEM(value, 0));
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return key;
  }
  PyErr_Restore(type, value, traceback);
  return {};
}
inline void set_import_error(const Ref& message, const Ref& module, const Ref& path, Borrowed) {
  PyErr_SetImportError(message.get(), module.get(), path.get());
}
inline PyCodeObject* code_of_generator(PyGenObject* generator) { return generator->gi_code; }

// The generator that a receiver of `yield from` or `await` drives: itself, or the one behind a coroutine's
// `__await__()` or an async generator's `asend()`. Null: none.
PyObject* driven_generator(PyObject* receiver);
// A receiver in its initial state that drives the same generator; null with an exception.
Ref renewed_receiver(PyObject* receiver);

// --- small things with another name in another version --------------------------------------------
inline int lookup_attribute(PyObject* object, PyObject* name, PyObject** result) {
  return _PyObject_LookupAttr(object, name, result);
}
inline PyObject* default_import(PyThreadState* ts) { return ts->interp->import_func; }
inline bool spec_is_initializing(PyObject* spec) { return _PyModuleSpec_IsInitializing(spec) != 0; }
inline void set_key_error(PyObject* key) { _PyErr_SetKeyError(key); }

}  // namespace alternator::cpython
