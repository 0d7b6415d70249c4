// The registers of the loop for one frame, and the stack operations of the opcodes.
//
// Invariant of every opcode: when it fails, its operands are still on the stack. Unwinding drops them, and a capture of
// the frame records them.
#pragma once

#include "interpreter/semantics.h"

namespace alternator {

enum class Flow : uint8_t {
  kNext,    // continue with the next instruction
  kError,   // an exception is set; this line is to be added to its traceback
  kUnwind,  // an exception is set and its traceback has this line already
  kReturn,  // the frame is done; its value is in `result`
  kYield,   // the frame is suspended; its value is in `result`
  kLeave    // not done: the default loop executes this instruction, and the rest of the frame
};

#define ALT_INLINE inline __attribute__((always_inline))

// Members stay in registers as long as no opcode exposes the machine's address.
template <class Semantics>
struct Machine {
  PyThreadState* const ts;
  cpython::Frame* const frame;
  PyCodeObject* const code;
  PyObject* const names;
  PyObject* const constants;
  cpython::CodeUnit* const first;
  Semantics& semantics;

  PyObject** sp;
  cpython::CodeUnit* next;
  PyObject* keyword_names = nullptr;  // borrowed: between KW_NAMES and CALL
  PyObject* result = nullptr;         // owned: after kReturn and kYield
  // The slot that holds the exception that our callers handle, saved when this frame began to handle its own: to be
  // replaced when the frame is continued elsewhere. -1: this frame handles none.
  int saved_exception_slot = -1;

  ALT_INLINE PyObject*& peek(int n) const { return sp[-n]; }
  ALT_INLINE void push(Ref value) { *sp++ = value.release(); }
  ALT_INLINE void push_null() { *sp++ = nullptr; }
  ALT_INLINE Ref pop() { return Ref::steal(*--sp); }
  ALT_INLINE void drop(int n) {
    for (; n > 0; n--) Py_XDECREF(*--sp);
  }
  ALT_INLINE PyObject*& local(int i) const { return frame->localsplus[i]; }
  ALT_INLINE Borrowed name(int i) const { return PyTuple_GET_ITEM(names, i); }
  ALT_INLINE int index() const { return static_cast<int>(next - first); }
  ALT_INLINE int slot() const { return static_cast<int>(sp - cpython::stack_base(frame)); }
  ALT_INLINE void jump(int units) { next += units; }

  ALT_INLINE Flow push_or_fail(Ref value) {
    if (!value) [[unlikely]]
      return Flow::kError;
    push(std::move(value));
    return Flow::kNext;
  }
  // Pops the operands, pushes the result.
  ALT_INLINE Flow replace(int operands, Ref value) {
    if (!value) [[unlikely]]
      return Flow::kError;
    drop(operands);
    push(std::move(value));
    return Flow::kNext;
  }
  ALT_INLINE Flow replace_bool(int operands, bool value) {
    return replace(operands, Ref::share(value ? Py_True : Py_False));
  }
  // Pops the operands, pushes nothing.
  ALT_INLINE Flow consume(int operands, int status) {
    if (status < 0) [[unlikely]]
      return Flow::kError;
    drop(operands);
    return Flow::kNext;
  }
  ALT_INLINE Flow handle_breaker() {
    if (!cpython::breaker_set(ts)) [[likely]]
      return Flow::kNext;
    return semantics.handle_breaker(ts) < 0 ? Flow::kError : Flow::kNext;
  }
  ALT_INLINE int escape(int n) {  // the n topmost values are stored where reads are not seen
    if constexpr (Semantics::kObserves) {
      for (int i = n; i > 0; i--) {
        if (peek(i) != nullptr && semantics.escape(peek(i)) < 0) return -1;
      }
    }
    return 0;
  }
  ALT_INLINE void note_saved_exception() {
    if (saved_exception_slot < 0) saved_exception_slot = slot();
  }
  Position position(int opcode, int oparg, PyObject* first_argument) const {
    return {ts, frame, sp, next, opcode, oparg, saved_exception_slot, first_argument, keyword_names};
  }
};

// An opcode: ALT_OP(NAME) { ... return Flow::kNext; } with `m` and `oparg` in scope.
#define ALT_OP(NAME) \
  template <class S> \
  ALT_INLINE Flow op_##NAME([[maybe_unused]] Machine<S>& m, [[maybe_unused]] int oparg)

}  // namespace alternator
