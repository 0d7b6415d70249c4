// Continuing a captured chain.
//
// A frame is created by calling its function with placeholder arguments: the hook recognizes it, fills it from its
// state and continues in the middle. Outer frames are filled first and linked, so that depth, f_back and tracebacks are
// what they were.
#include "interpreter/capture.h"

#include "cpython/frame_objects.h"
#include "interpreter/call_continuation.h"
#include "interpreter/loop.h"
#include "py/names.h"

#include <algorithm>
#include <array>

namespace alternator {

// If tracing was switched on while a frame waited, it continues under the tracer.
static PyObject* go_on(PyThreadState* ts, cpython::Frame* frame, int throwflag, FrameRunner runner,
                       const Entry& entry) {
  const bool ours = runner != nullptr && !cpython::tracing_active(ts);
  return ours ? runner(ts, frame, throwflag, entry) : run_default(ts, frame, throwflag);
}

PyObject* run_in_loop(PyThreadState* ts, cpython::Frame* frame, int throwflag, const Entry& entry) {
  Concrete concrete;
  if (control.watch == nullptr && global_control.exit_every == 0) return run(ts, frame, throwflag, concrete, entry);
  Probe probe;
  return run(ts, frame, throwflag, probe, entry);
}

// Calls the function with as many placeholders as it takes; the hook fills the frame before it runs.
static Ref call_with_placeholders(Borrowed function, Borrowed code_object) {
  auto* code = code_object.as<PyCodeObject>();
  Ref carrier = Ref::share(function);
  if (function.as<PyFunctionObject>()->func_code != code_object.get()) {
    // The function's code was replaced meanwhile; the frame keeps the old one.
    carrier = Ref::steal(PyFunction_New(code_object.get(), function.as<PyFunctionObject>()->func_globals));
    if (!carrier) return {};
    carrier.as<PyFunctionObject>()->func_closure = Py_XNewRef(function.as<PyFunctionObject>()->func_closure);
  }
  const int positional = code->co_argcount, keyword_only = code->co_kwonlyargcount;
  const size_t count = static_cast<size_t>(positional) + static_cast<size_t>(keyword_only);
  std::array<PyObject*, 16> few;  // enough for most functions
  std::fill_n(few.begin(), std::min(count, few.size()), Py_None);
  const std::vector<PyObject*> many(count > few.size() ? count : 0, Py_None);
  Ref names_tuple;
  if (keyword_only > 0) {
    names_tuple = Ref::steal(PyTuple_New(keyword_only));
    if (!names_tuple) return {};
    for (int i = 0; i < keyword_only; i++) {
      PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, positional + i);
      PyTuple_SET_ITEM(names_tuple.get(), i, Py_NewRef(name));
    }
  }
  PyObject* const* arguments = many.empty() ? few.data() : many.data();
  return Ref::steal(PyObject_Vectorcall(carrier.get(), arguments, static_cast<size_t>(positional), names_tuple.get()));
}

static void await_frame(Chain& chain, size_t index, FrameRunner runner) {
  control.pending = &chain;
  control.pending_index = index;
  control.pending_runner = runner;
}

static void revive(const FrameState& state) {
  auto* code = state.code.as<PyCodeObject>();
  cpython::revive_generator(state.generator.as<PyGenObject>(), state.function.as<PyFunctionObject>(),
                            cpython::first_instruction(code) + state.next);
}

Ref make_cleared_generator(Borrowed function, Borrowed code) {
  // The frame runs up to RETURN_GENERATOR only. An exception thrown into a generator that has not started leaves it at
  // once and clears its frame; close() only marks it in newer versions.
  Ref generator = call_with_placeholders(function, code);
  if (!generator) throw PyError();
  Ref left = Ref::steal(PyObject_CallMethod(generator.get(), "throw", "O", PyExc_GeneratorExit));
  if (left || PyErr_ExceptionMatches(PyExc_GeneratorExit) == 0) throw PyError();
  PyErr_Clear();
  return generator;
}

static Ref run_state(Chain& chain, size_t index, FrameRunner runner) {
  const FrameState& state = chain[index];
  Ref result;
  if (state.generator) {
    revive(state);
    await_frame(chain, index, runner);
    if (PyAsyncGen_CheckExact(state.generator.get())) {
      PyErr_SetString(PyExc_NotImplementedError, "an async generator's frame is continued only by what awaits it");
    } else {
      result = Ref::steal(PyObject_CallMethodOneArg(state.generator.get(), names::send, Py_None));
    }
  } else {
    await_frame(chain, index, runner);
    result = call_with_placeholders(state.function, state.code);
  }
  control.pending = nullptr;
  return result;
}

const std::string* cannot_continue(const Chain& chain) {
  for (const FrameState& state : chain) {
    if (state.continuation == Continuation::kCannot) return &state.cannot;
  }
  return nullptr;
}

Ref continue_chain(Chain& chain, FrameRunner runner) {
  if (const std::string* why = cannot_continue(chain)) {
    PyErr_Format(PyExc_NotImplementedError, "cannot be continued: %s", why->c_str());
    return {};
  }
  return run_state(chain, chain.size() - 1, runner);
}

namespace {

// The exception that the innermost frame of a chain is to raise.
struct Thrown {
  const Chain* into = nullptr;
  Ref exception;
};
thread_local Thrown* thrown __attribute__((tls_model("initial-exec"))) = nullptr;

}  // namespace

Ref continue_raising(Chain& chain, Ref exception) {
  Thrown here{&chain, std::move(exception)};
  Thrown* const before = std::exchange(thrown, &here);
  Ref result = continue_chain(chain, nullptr);
  thrown = before;
  return result;
}

bool is_pending(cpython::Frame* frame, int throwflag) {
  if (control.pending == nullptr || throwflag) return false;
  const FrameState& state = (*control.pending)[control.pending_index];
  if (reinterpret_cast<PyObject*>(cpython::code_of(frame)) != state.code.get()) return false;
  if (!state.generator) return !cpython::owned_by_generator(frame);
  return cpython::owned_by_generator(frame) &&
         reinterpret_cast<PyObject*>(cpython::generator_of(frame)) == state.generator.get();
}

static void fill_locals(FrameState& state, cpython::Frame* frame) {
  // Drops the current contents: placeholder arguments, or the value sent into a generator.
  for (PyObject** sp = cpython::stack_pointer(frame); sp > cpython::stack_base(frame);) Py_XDECREF(*--sp);
  PyObject** to = frame->localsplus;
  for (Ref *local = state.locals.begin(), *end = state.locals.end(); local != end; ++local, ++to) {
    Py_XDECREF(std::exchange(*to, local->release()));
  }
  if (state.locals_mapping) Py_XDECREF(std::exchange(frame->f_locals, Py_NewRef(state.locals_mapping.get())));
}

static PyObject** fill_stack(FrameState& state, cpython::Frame* frame) {
  PyObject** sp = cpython::stack_base(frame);
  for (Ref& value : state.stack) *sp++ = value.release();
  return sp;
}

// The handled exception is thread state: the frame's own replaces the current one, which moves into the slot where the
// frame keeps its callers' exception. A generator has its own exception state.
static void fill_handled_exception(PyThreadState* ts, FrameState& state, cpython::Frame* frame) {
  if (!state.generator && state.saved_exception_slot < 0) return;
  PyObject* callers = std::exchange(cpython::handled_exception(ts), state.handled.release());
  if (state.saved_exception_slot >= 0 && !state.generator) {
    PyObject*& slot = cpython::stack_base(frame)[state.saved_exception_slot];
    Py_XDECREF(std::exchange(slot, callers != nullptr ? callers : Py_NewRef(Py_None)));
  } else {
    Py_XDECREF(callers);
  }
}

// The first unit of an instruction, including its EXTENDED_ARG prefixes.
static cpython::CodeUnit* with_prefixes(cpython::CodeUnit* first, cpython::CodeUnit* at) {
  while (at > first && cpython::base_opcode(at[-1]) == EXTENDED_ARG) at--;
  return at;
}

static PyObject* reexecute(PyThreadState* ts, cpython::Frame* frame, PyObject** sp, Chain& chain, size_t index,
                           FrameRunner runner, const Entry& entry) {
  const FrameState& state = chain[index];
  cpython::CodeUnit* first = cpython::first_instruction(cpython::code_of(frame));
  cpython::CodeUnit* at = first + state.current;
  revive(chain[index - 1]);
  if (cpython::base_opcode(*at) == SEND) {
    Ref receiver = cpython::renewed_receiver(sp[-2]);
    if (!receiver) {
      cpython::set_stack_pointer(frame, sp);
      cpython::set_throw_position(frame, at);
      return go_on(ts, frame, 1, runner, entry);
    }
    Py_DECREF(std::exchange(sp[-2], receiver.release()));
    Py_DECREF(std::exchange(sp[-1], Py_NewRef(Py_None)));  // the sent value has arrived already
  }
  cpython::set_stack_pointer(frame, sp);
  cpython::set_next_instruction(frame, with_prefixes(first, at));
  await_frame(chain, index - 1, runner);
  return go_on(ts, frame, 0, runner, entry);
}

// The rest of an instruction called a frame that was captured: the instruction now waits for that one.
static void wait_for_rest(FrameState& state) {
  const SavedError unwinding;
  const FrameState& inner = control.capturing->back();
  if (state.continuation == Continuation::kAttribute) return;
  if (state.continuation == Continuation::kNew && inner.first_argument && inner.continuation != Continuation::kCannot) {
    PyObject* init = _PyType_Lookup(Py_TYPE(inner.first_argument.get()), names::__init__);
    if (init == inner.function.get()) {
      state.continuation = Continuation::kInstance;
      return;
    }
  }
  state.continuation = Continuation::kCannot;
  state.cannot = "native code lies between the rest of an instruction and the frame that it led to";
}

PyObject* run_pending(PyThreadState* ts, cpython::Frame* frame) {
  Chain& chain = *control.pending;
  const size_t index = control.pending_index;
  const FrameRunner runner = control.pending_runner;
  control.pending = nullptr;
  FrameState& state = chain[index];
  const Entry entry{state.saved_exception_slot, state.first_argument.get(),
                    state.continuation == Continuation::kNone ? nullptr : &state};

  fill_locals(state, frame);
  PyObject** sp = fill_stack(state, frame);
  cpython::set_stack_pointer(frame, sp);
  fill_handled_exception(ts, state, frame);
  if (state.frame_object) cpython::adopt_frame_object(frame, std::move(state.frame_object));
  if (state.generator) {
    // Its owners determine its lifetime: the chain must not keep it alive.
    state.generator.reset();
    state.function.reset();
  }

  cpython::CodeUnit* first = cpython::first_instruction(cpython::code_of(frame));
  if (state.continuation == Continuation::kNone && thrown != nullptr && thrown->into == &chain) {
    cpython::set_throw_position(frame, first + state.next);
    const Ref exception = std::move(thrown->exception);
    thrown = nullptr;
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())), exception.get());
    return go_on(ts, frame, 1, runner, entry);
  }
  if (state.continuation == Continuation::kNone) {
    cpython::set_next_instruction(frame, first + state.next);
    return go_on(ts, frame, 0, runner, entry);
  }
  if (state.continuation == Continuation::kReexecute) return reexecute(ts, frame, sp, chain, index, runner, entry);

  // Wait in the instruction, as the current frame, for the inner frames to finish.
  cpython::set_current_instruction(frame, first + state.current);
  Delivery delivery;
  {
    cpython::Link link(ts, frame);
    const bool entered = cpython::enter_recursion(ts);
    cpython::hide_stack(frame);
    Ref result = entered ? run_state(chain, index - 1, runner) : Ref();
    // Delivering may execute the rest of the instruction, which belongs to this frame.
    const bool stopped = capture_in_flight();
    delivery = deliver(state, chain[index - 1], frame, sp, std::move(result));
    if (!stopped && control.capturing != nullptr) wait_for_rest(state);
    {
      const FrameState dying(std::move(chain[index - 1]));
    }  // the inner frame's arguments may be released now
    if (entered) cpython::leave_recursion(ts);
  }
  cpython::set_stack_pointer(frame, delivery.sp);
  if (delivery.next == nullptr) {
    cpython::set_throw_position(frame, first + state.current);
    return go_on(ts, frame, 1, runner, entry);
  }
  cpython::set_next_instruction(frame, delivery.next);
  return go_on(ts, frame, 0, runner, entry);
}

}  // namespace alternator
