#include "trace/core/frame_evaluator.h"

#include "graph/record/torch_types.h"
#include "interpreter/capture.h"
#include "interpreter/continuation_calls.h"
#include "interpreter/frame_hook.h"
#include "interpreter/loop.h"
#include "lift/sources/python_twins.h"
#include "py/lasting.h"
#include "trace/calls/native_reads.h"
#include "trace/core/paused.h"
#include "trace/core/tracing.h"
#include "trace/opcodes/raised_exceptions.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/symbolic/unbacked_arithmetic.h"

#include <algorithm>
#include <cstring>

namespace alternator::trace {

thread_local Tracer* current_tracer __attribute__((tls_model("initial-exec"))) = nullptr;
thread_local int hook_depth __attribute__((tls_model("initial-exec"))) = 0;

Paused::Paused(Tracer& tracer) : tracer_(&tracer) {
  control.evaluator = nullptr;
  current_tracer = nullptr;
}
Paused::~Paused() {
  control.evaluator = evaluate_traced;
  current_tracer = tracer_;
}

namespace {

// Frames end at their current instruction.
struct Discarded : Concrete {
  static constexpr bool kObserves = true;
  Verdict at_boundary(const Position&) { return Verdict::kGo; }
};

PyObject* evaluate_discarded(PyThreadState* ts, cpython::Frame* frame, int throwflag) {
  const bool closing = throwflag != 0 && PyErr_ExceptionMatches(PyExc_GeneratorExit) != 0;
  Discarded semantics;
  PyObject* result = ::alternator::run(ts, frame, throwflag, semantics);
  if (result != nullptr) return result;
  PyErr_Clear();
  if (!closing) return Py_NewRef(Py_None);
  PyErr_SetNone(PyExc_GeneratorExit);
  return nullptr;
}

}  // namespace

static PyObject* discard_while_unwinding(PyThreadState* ts, cpython::Frame* frame, int throwflag) {
  Chain* const capturing = std::exchange(control.capturing, nullptr);
  const bool abandoning = std::exchange(control.abandoning, true);
  PyObject* result = evaluate_discarded(ts, frame, throwflag);
  control.capturing = capturing;
  control.abandoning = abandoning;
  return result;
}

PyObject* run_traced(PyThreadState* ts, cpython::Frame* frame, int throwflag, const Entry& entry) {
  Tracer* tracer = current_tracer;
  if (tracer == nullptr) return run_default(ts, frame, throwflag);
  PyObject* generator =
      cpython::owned_by_generator(frame) ? reinterpret_cast<PyObject*>(cpython::generator_of(frame)) : nullptr;
  // Torch functions reached through type slots are recorded like those reached by CALL.
  Tracing tracing(*tracer);
  PyObject* result = ::alternator::run(ts, frame, throwflag, tracing, entry);
  if (generator != nullptr) tracer->exceptions->note_generator(generator);
  return result;
}

// The code object of torch.Tensor.__torch_function__.
static PyObject* torch_function_code() {
  static constinit Lasting<PyObject*> code;
  return code.get([] {
    PyObject* tensor = reinterpret_cast<PyObject*>(graph::torch_types().tensor);
    Ref method = checked(PyObject_GetAttrString(tensor, "__torch_function__"));
    Ref function = PyMethod_Check(method.get()) ? Ref::share(PyMethod_GET_FUNCTION(method.get())) : std::move(method);
    // Not as an attribute: reading __code__ raises an audit event, and the frame of an audit hook would call this
    // again.
    return Py_NewRef(PyFunction_Check(function.get()) ? PyFunction_GET_CODE(function.get()) : Py_None);
  });
}

static bool is_dead_reference(PyObject* object) {
  if (object == nullptr || !PyWeakref_CheckRef(object)) return false;
  auto* reference = reinterpret_cast<PyWeakReference*>(object);
  return reference->wr_object == Py_None && reference->wr_callback == nullptr;
}

// Exceptions in a frame that an object's finalization starts are reported as unraisable, and lost.
static bool reports_finalization(cpython::Frame* frame) {
  PyCodeObject* code = cpython::code_of(frame);
  for (int i = 0; i < std::min(code->co_argcount, 2); i++) {  // a method receives it second
    if (is_dead_reference(frame->localsplus[i])) return true;
  }
  if ((code->co_flags & CO_VARARGS) == 0) return false;
  PyObject* rest = frame->localsplus[code->co_argcount + code->co_kwonlyargcount];
  return rest != nullptr && PyTuple_CheckExact(rest) && PyTuple_GET_SIZE(rest) > 0 &&
         is_dead_reference(PyTuple_GET_ITEM(rest, PyTuple_GET_SIZE(rest) - 1));
}

// The callback of a dead weak reference that untraced code created, as in torch's tables of fake tensors. It is not
// part of the program.
static bool is_foreign_callback(const Tracer& tracer, cpython::Frame* frame) {
  PyCodeObject* code = cpython::code_of(frame);
  PyObject* first = code->co_argcount > 0 ? frame->localsplus[0] : nullptr;
  if (!is_dead_reference(first)) return false;
  Borrowed function = reinterpret_cast<PyObject*>(cpython::function_of(frame));
  // A method of the reference itself is called by the program.
  PyObject* method = _PyType_Lookup(Py_TYPE(first), code->co_name);
  return method != function.get() && tracer.lifter.known(function) == nullptr && !tracer.lifter.made_here(function);
}

// Native code that calls one of these reads the concrete value of the result.
static bool gives_digits(PyCodeObject* code) {
  static constexpr const char* kNames[] = {"__index__", "__len__",   "__length_hint__", "__bool__",
                                           "__int__",   "__float__", "__complex__",     "__hash__"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](const char* name) { return PyUnicode_CompareWithASCIIString(code->co_name, name) == 0; });
}

// An unbacked symbol, or a container of one.
static bool is_unbacked_symbol(Tracer& tracer, Borrowed result, bool needed) {
  if (needed) tracer.backed->make_plain(result);
  if (Py_IS_TYPE(result.get(), &fake::int_symbol_type)) integers_given()++;
  return fake::is_symbol(result) ||
         ((PyTuple_Check(result.get()) || PyList_CheckExact(result.get())) && may_hold_symbol(tracer, result));
}

// Checks a value before native code inspects it, as the arguments of a native call are checked.
static void check_given(Tracer& tracer, Borrowed value, const char* what, int depth = 0) {
  constexpr int kDeepest = 3;
  check_use(tracer, value, what);
  if (depth == kDeepest || !(PyTuple_CheckExact(value.get()) || PyList_CheckExact(value.get()))) return;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value.get()); i++)
    check_given(tracer, PySequence_Fast_GET_ITEM(value.get(), i), what, depth + 1);
}

// A frame that native code starts.
static PyObject* run_for_native(PyThreadState* ts, cpython::Frame* frame, int throwflag) {
  const Ref code = Ref::share(reinterpret_cast<PyObject*>(cpython::code_of(frame)));
  const bool read = Reading::now(), added = Reading::adds();
  const bool loses_errors = throwflag == 0 && reports_finalization(frame);
  Ref result;
  {
    const Reading of_its_own(false);
    result = Ref::steal(run_traced(ts, frame, throwflag, {}));
  }
  if (!result && loses_errors && capture_in_flight()) {
    PyErr_Clear();  // the next frame to run detects the capture
    return Py_NewRef(Py_None);
  }
  Tracer* tracer = current_tracer;
  if (!result && tracer != nullptr && !tracer->result.stopped && !capture_in_flight() && lift::is_stand_in(code)) {
    PyErr_Clear();  // the frame of the stand-in is in the traceback
    tracer->stop_here(report::Reason::native_call, "a function that native code calls, and that fails");
  }
  if (!result || tracer == nullptr || tracer->result.stopped) return result.release();
  const char* name = PyUnicode_AsUTF8(code.as<PyCodeObject>()->co_name);
  try {
    if (is_deferred_string(result)) stop(report::Reason::tensor_text, name);
    const bool digits = gives_digits(code.as<PyCodeObject>());
    const bool unknown = is_unbacked_symbol(*tracer, result, read || digits);
    if (unknown && (read || (fake::is_symbol(result) && digits))) stop(report::Reason::unbacked_value, name);
    const bool is_hash = strcmp(name, "__hash__") == 0;  // a key: it may depend on an address
    if (read && !is_hash) check_given(*tracer, result, name);
    if (!read && added && !unknown) check_use(*tracer, result, name);
    return result.release();
  } catch (const PyError&) {  // the error indicator is set
  } catch (const Stop& stop) {
    tracer->stop_here(stop.reason, stop.context);
  }
  return nullptr;
}

// The rest of an instruction that began before the trace.
Ref call_traced(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  if (current_tracer == nullptr) return call_natively(callable, arguments, positional, keyword_names);
  return Tracing(*current_tracer).call(callable, arguments, positional, keyword_names);
}

PyObject* evaluate_traced(PyThreadState* ts, cpython::Frame* frame, int throwflag) {
  // Audit hooks and trace functions are not part of the program; they also see what the tracer itself does.
  const bool in_hook = ts->tracing > hook_depth;
  if (current_tracer != nullptr && throwflag == 0 && (in_hook || is_foreign_callback(*current_tracer, frame))) {
    const Paused paused(*current_tracer);
    return run_default(ts, frame, throwflag);
  }
  // Frames of the trace are unwinding, and dropped the last reference to a generator or coroutine: what CPython runs to
  // close it is not part of the program.
  if (capture_in_flight()) return discard_while_unwinding(ts, frame, throwflag);
  // What torch does for subclasses inside a recorded call is part of that call.
  if (current_tracer != nullptr && current_tracer->recorder.is_silent() &&
      reinterpret_cast<PyObject*>(cpython::code_of(frame)) == torch_function_code()) {
    const Paused paused(*current_tracer);
    return run_default(ts, frame, throwflag);
  }
  return run_for_native(ts, frame, throwflag);
}

Discarding::Discarding() : abandoning_(control.abandoning), evaluator_(control.evaluator) {
  acquire_hook();
  control.evaluator = evaluate_discarded;
  control.abandoning = true;
}

Discarding::~Discarding() {
  control.abandoning = abandoning_;
  control.evaluator = evaluator_;
  release_hook();
}

}  // namespace alternator::trace
