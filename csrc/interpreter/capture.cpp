#include "interpreter/capture.h"

#include "cpython/frame_objects.h"
#include "interpreter/call_continuation.h"
#include "py/names.h"

namespace alternator {

static PyObject* abandoned_type;  // never seen by a handler, so it needs no name that users could catch

int init_capture() {
  if (abandoned_type != nullptr) return 0;
  abandoned_type = PyErr_NewException("alternator.Abandoned", PyExc_BaseException, nullptr);
  return abandoned_type != nullptr ? 0 : -1;
}

// Without the context that PyErr_SetNone() would attach.
static void set_abandoned() { PyErr_Restore(Py_NewRef(abandoned_type), nullptr, nullptr); }

static void fill(FrameState& state, const Position& position) {
  cpython::Frame* frame = position.frame;
  PyCodeObject* code = cpython::code_of(frame);
  state.function = Ref::share(cpython::function_of(frame));
  state.code = Ref::share(code);
  state.next = position.next_index();
  state.current = cpython::current_index(frame);
  state.locals.assign(frame->localsplus, frame->localsplus + code->co_nlocalsplus);
  state.stack.assign(cpython::stack_base(frame), position.sp);
  state.locals_mapping = Ref::share(frame->f_locals);
  state.handled = Ref::share(cpython::handled_exception(position.ts));
  state.saved_exception_slot = position.saved_exception_slot;
  state.first_argument = Ref::share(position.first_argument);
  state.keyword_names = Ref::share(position.keyword_names);
  state.frame_object = Ref::share(reinterpret_cast<PyObject*>(frame->frame_obj));
  if (cpython::owned_by_generator(frame)) {
    state.generator = Ref::share(reinterpret_cast<PyObject*>(cpython::generator_of(frame)));
  }
}

static FrameState snapshot(const Position& position) {
  FrameState state;
  fill(state, position);
  return state;
}

// A GeneratorExit, or an exception raised while one was handled.
static bool is_exit(PyObject* value) {
  constexpr int kDeepest = 100;
  for (int i = 0; i < kDeepest && value != nullptr && PyExceptionInstance_Check(value); i++) {
    if (PyErr_GivenExceptionMatches(value, PyExc_GeneratorExit) != 0) return true;
    value = reinterpret_cast<PyBaseExceptionObject*>(value)->context;
  }
  return false;
}

// Whether CPython calls this frame as a finalizer: __del__, a weak reference's callback, a generator that is being
// closed.
static bool is_finalizer(cpython::Frame* frame) {
  PyCodeObject* code = cpython::code_of(frame);
  if (!PyCode_Check(reinterpret_cast<PyObject*>(code))) return false;  // the default loop's entry frame
  if (cpython::owned_by_generator(frame)) return is_exit(cpython::generator_of(frame)->gi_exc_state.exc_value);
  PyObject* argument = code->co_argcount > 0 ? frame->localsplus[0] : nullptr;
  if (argument != nullptr && PyCell_Check(argument)) argument = PyCell_GET(argument);
  if (argument == nullptr) return false;
  if (PyWeakref_Check(argument)) return PyWeakref_GET_OBJECT(argument) == Py_None;
  PyObject* finalizer = _PyType_Lookup(Py_TYPE(argument), names::__del__);
  return finalizer != nullptr && finalizer == reinterpret_cast<PyObject*>(cpython::function_of(frame));
}

bool is_closing(const Position& position) {
  if (!cpython::owned_by_generator(position.frame)) return false;
  // The frame may be entering the handler: the exception to be handled is still on its stack.
  return is_finalizer(position.frame) || (position.stack_size() > 0 && is_exit(position.sp[-1]));
}

void end_closing() {
  PyErr_Clear();
  PyErr_SetNone(PyExc_GeneratorExit);
}

bool may_capture(const Position& position) {
  const bool closing = is_closing(position);
  cpython::Frame* const below = control.watch->below;
  for (cpython::Frame* frame = position.frame; frame != nullptr && frame != below; frame = frame->previous) {
    if (!closing && !is_finalizer(frame)) continue;
    FrameState state = snapshot(position);
    state.continuation = Continuation::kCannot;
    state.cannot = "native code lies between a finalizer, or a generator being closed, and the frame that triggered it";
    control.watch->chain->push_back(std::move(state));
    return false;
  }
  return true;
}

void capture_innermost(const Position& position) {
  control.capturing = control.watch->chain;
  fill(control.capturing->emplace_back(), position);
  set_abandoned();
}

void capture_outer(const Position& position, const FrameState* waiting) {
  if (control.abandoning) return;
  SavedError unwinding;
  FrameState state = snapshot(position);
  if (waiting != nullptr) {
    state.next = waiting->next;
    state.current = waiting->current;
    state.continuation = waiting->continuation;
    state.cannot = waiting->cannot;
    state.operands = waiting->operands;
    state.attempt = waiting->attempt;
    state.keyword_names = waiting->keyword_names;
  } else {
    classify_continuation(position, control.capturing->back(), &state);
  }
  control.capturing->push_back(std::move(state));
}

void capture_swallowed() {
  if (control.abandoning) {
    if (!PyErr_Occurred()) set_abandoned();
    return;
  }
  FrameState& inner = control.capturing->back();
  inner.continuation = Continuation::kCannot;
  inner.cannot = "native code between two frames swallowed an exception";
  if (!PyErr_Occurred()) set_abandoned();
}

void restore_handled_exception(PyThreadState* ts, cpython::Frame* frame, int saved_exception_slot) {
  if (saved_exception_slot < 0) return;
  PyObject*& saved = cpython::stack_base(frame)[saved_exception_slot];
  PyObject* previous = cpython::as_handled(std::exchange(saved, nullptr));
  Py_XDECREF(std::exchange(cpython::handled_exception(ts), previous));
}

void abandon_everything() {
  control.abandoning = true;
  set_abandoned();
}

void finish_abandoning() {
  control.abandoning = false;
  PyErr_Clear();
}

// A frame object with no other owner ends with its frame. The others drop the locals that the chain now owns: they must
// not keep them alive, and get them back with the resumed frame.
static void finish_frame_objects(Chain& chain) {
  for (FrameState& state : chain) {  // innermost first: it refers to its callers
    if (!state.frame_object) continue;
    if (Py_REFCNT(state.frame_object.get()) == 1) {
      state.frame_object.reset();
    } else {
      cpython::empty_frame(state.frame_object.as<PyFrameObject>());
    }
  }
}

void finish_capture() {
  Chain* const chain = std::exchange(control.capturing, nullptr);
  PyErr_Clear();
  if (chain == nullptr) return;
  finish_frame_objects(*chain);
  // Only a continuation that constructs an object needs the first argument of the call.
  std::vector<Ref> dying;
  for (size_t i = 0; i < chain->size(); i++) {
    const Continuation outer = i + 1 < chain->size() ? (*chain)[i + 1].continuation : Continuation::kNone;
    if (outer != Continuation::kInstance && outer != Continuation::kNew)
      dying.push_back(std::move((*chain)[i].first_argument));
  }
}

int sets_next(const Chain& chain) {
  const FrameState& state = chain.front();
  if (state.continuation != Continuation::kNone) return -1;
  const cpython::CodeUnit unit = cpython::first_instruction(state.code.as<PyCodeObject>())[state.next];
  const int opcode = cpython::base_opcode(unit), oparg = cpython::argument(unit);
  if (opcode == STORE_FAST) return oparg;
#ifdef STORE_FAST_LOAD_FAST
  if (opcode == STORE_FAST_LOAD_FAST || opcode == STORE_FAST_STORE_FAST) return oparg >> 4;
#endif
  return -1;
}

}  // namespace alternator
