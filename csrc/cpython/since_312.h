// Shared by 3.12 and 3.13. Included by v312.h and v313.h, after the parts that differ.
#pragma once

#include <cstring>

namespace alternator::cpython {

// --- what the opcodes look like ------------------------------------------------------------------
// CALL itself unpacks a bound method.
inline constexpr bool kHasPrecall = false;
// LOAD_ATTR's lowest bit says that a method is loaded.
inline constexpr bool kLoadAttrHasMethodBit = true;
// SEND leaves the receiver on the stack; END_SEND pops it.
inline constexpr bool kSendKeepsReceiver = true;

constexpr TruthJump truth_jump(int opcode, int oparg) {
  switch (opcode) {
    case POP_JUMP_IF_FALSE:
      return {true, false, false, oparg};
    case POP_JUMP_IF_TRUE:
      return {true, true, false, oparg};
    default:
      return {};
  }
}
constexpr bool is_load_method(int) { return false; }
constexpr bool is_unary_positive(int opcode, int oparg) {
  return opcode == CALL_INTRINSIC_1 && oparg == INTRINSIC_UNARY_POSITIVE;
}

inline int base_opcode(CodeUnit unit) { return alt_opcode_deopt[unit.op.code]; }
inline int argument(CodeUnit unit) { return unit.op.arg; }
inline CodeUnit* first_instruction(PyCodeObject* code) { return _PyCode_CODE(code); }

// --- frames --------------------------------------------------------------------------------------
inline PyFunctionObject* function_of(const Frame* frame) {
  return reinterpret_cast<PyFunctionObject*>(frame->f_funcobj);
}
inline PyObject** stack_base(Frame* frame) { return _PyFrame_Stackbase(frame); }
inline PyObject** stack_pointer(Frame* frame) { return frame->localsplus + frame->stacktop; }
inline void set_stack_pointer(Frame* frame, PyObject** sp) { _PyFrame_SetStackPointer(frame, sp); }
inline void hide_stack(Frame* frame) { frame->stacktop = -1; }
inline int current_index(Frame* frame) { return _PyInterpreterFrame_LASTI(frame); }
inline bool is_incomplete(Frame* frame) { return _PyFrame_IsIncomplete(frame); }
inline bool owned_by_generator(const Frame* frame) { return frame->owner == FRAME_OWNED_BY_GENERATOR; }
inline PyGenObject* generator_of(Frame* frame) { return _PyFrame_GetGenerator(frame); }
inline Frame* frame_of_generator(PyGenObject* generator) { return reinterpret_cast<Frame*>(generator->gi_iframe); }
// A finished generator's frame keeps its code.
inline PyCodeObject* code_of_generator(PyGenObject* generator) { return code_of(frame_of_generator(generator)); }
bool revive_generator(PyGenObject* generator, PyFunctionObject* function, CodeUnit* next);

// Makes a frame the current one for the lifetime of this object (tracebacks, sys._getframe).
class Link {
 public:
  Link(PyThreadState* ts, Frame* frame) : ts_(ts), previous_(current_frame(ts)), monitored_(monitoring_version(ts)) {
    frame->previous = previous_;
    current_frame(ts) = frame;
  }
  ~Link() { unlink(); }
  void unlink() {
    if (linked_) current_frame(ts_) = previous_;
    linked_ = false;
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  // sys.settrace, setprofile or sys.monitoring was used while the frame ran.
  bool tracing() const { return monitoring_version(ts_) != monitored_; }

 private:
  PyThreadState* const ts_;
  Frame* const previous_;
  const uint64_t monitored_;
  bool linked_ = true;
};

constexpr bool kTracersInstrument = true;
// Any kind of event is enabled, in any thread.
inline bool tracing_active(PyThreadState* ts) {
  uint64_t tools[2] = {};
  static_assert(sizeof ts->interp->monitors <= sizeof tools);
  std::memcpy(tools, &ts->interp->monitors, sizeof ts->interp->monitors);
  return (tools[0] | tools[1]) != 0 || ts->c_tracefunc != nullptr || ts->c_profilefunc != nullptr;
}

// Local events are enabled for this code (sys.monitoring.set_local_events): the first LINE event is reported by RESUME
// or by the instruction after it.
inline bool is_watched(PyCodeObject* code) {
  if (code->_co_monitoring == nullptr) [[likely]]
    return false;
  for (uint8_t tools : code->_co_monitoring->active_monitors.tools) {
    if (tools != 0) return true;
  }
  return false;
}
// The code must be instrumented (or de-instrumented) first, or is instrumented: the default loop does that.
inline bool resume_needs_default_loop(PyThreadState* ts, PyCodeObject* code) {
  return code->_co_instrumentation_version != monitoring_version(ts) || is_watched(code);
}
// The same for a frame that only the tracer executes: where no events are enabled and this code has no instrumentation,
// there is nothing to insert or remove.
inline bool resume_is_observed(PyThreadState* ts, PyCodeObject* code) {
  return is_watched(code) || (code->_co_instrumentation_version != monitoring_version(ts) && tracing_active(ts));
}

// --- recursion -----------------------------------------------------------------------------------
// The default loop takes C-recursion units for each of its frames. Ours checks the C stack instead, but keeps enough
// units for calling the default loop.
inline bool stack_exhausted(PyThreadState* ts) {
  return ts->py_recursion_remaining <= 0 || ts->c_recursion_remaining <= 4 || c_stack_low();
}
// The default loop raises RecursionError, and clears the frame.
PyObject* run_exhausted(PyThreadState* ts, Frame* frame, int throwflag);
inline bool enter_recursion(PyThreadState* ts) {
  ts->py_recursion_remaining--;
  return true;
}
inline void leave_recursion(PyThreadState* ts) { ts->py_recursion_remaining++; }
// Extra recursion depth for an internal call that must not count against the program.
class Headroom {
 public:
  explicit Headroom(PyThreadState* ts) : ts_(ts) { add(1); }
  ~Headroom() { add(-1); }
  Headroom(const Headroom&) = delete;
  Headroom& operator=(const Headroom&) = delete;

 private:
  void add(int sign) {
    ts_->py_recursion_remaining += sign * 4;
    ts_->c_recursion_remaining += sign * 16;
  }
  PyThreadState* const ts_;
};

// --- exceptions ----------------------------------------------------------------------------------
inline PyObject*& handled_exception(PyThreadState* ts) { return ts->exc_info->exc_value; }
inline Ref take_raised() { return Ref::steal(PyErr_GetRaisedException()); }
inline void set_raised(Ref exception) { PyErr_SetRaisedException(exception.release()); }
// Any KeyError of one argument counts, as in CPython.
Ref take_merge_conflict_key();
void set_import_error(const Ref& message, const Ref& module, const Ref& path, Borrowed name);

// --- generators ----------------------------------------------------------------------------------
PyObject* driven_generator(PyObject* receiver);
Ref renewed_receiver(PyObject* receiver);

inline PyObject* default_import(PyThreadState* ts) { return ts->interp->imports.import_func; }
inline void set_key_error(PyObject* key) { _PyErr_SetKeyError(key); }

}  // namespace alternator::cpython
