// Exceptions in a trace: what is raised, what interrupts, what leaves the function.
#include "trace/opcodes/raised_exceptions.h"
#include "trace/calls/call_dispatch.h"
#include "trace/calls/instance_tests.h"
#include "trace/core/frame_access.h"
#include "trace/core/tracer.h"

#include "cpython/objects.h"
#include "cpython/version.h"
#include "lift/lifting/functions.h"
#include "py/exception_frames.h"
#include "py/import.h"
#include "py/lasting.h"
#include "trace/core/interrupts.h"

#include <frameobject.h>

namespace alternator::trace {

namespace {

PyObject* query_of_handled() {
  static constinit Lasting<PyObject*> lasting;
  return lasting.get([] { return checked(PyObject_GetAttrString(import_module("sys").get(), "exception")).release(); });
}

// Exceptions that depend on stack depth or free memory, not on the program: another run may not raise them.
bool is_resource_error(PyObject* type) {
  return type == PyExc_MemoryError || type == PyExc_RecursionError || type == PyExc_SystemError;
}

// Exceptions that the recorder raises: alternator._C.graph.RecordError and the like.
bool is_recorder_error(PyObject* type) {
  PyObject* module = PyDict_GetItemString(cpython::own_dict(reinterpret_cast<PyTypeObject*>(type)), "__module__");
  const char* text = module != nullptr && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
  return text != nullptr && strncmp(text, "alternator", 10) == 0;
}

// The value of the error indicator, not normalized; a user's exception instance is never mutated.
PyObject* raised_value() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_Restore(type, value, traceback);
  return value;
}

}  // namespace

bool is_interrupt(const Tracer& tracer) {
  if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyObject* value = raised_value();
  return value == nullptr || !tracer.lifter.made_here(value);
}

void stop_for_interrupt(Tracer& tracer, const std::string& what) {
  tracer.result.interrupted = cpython::take_raised();
  {
    const Paused paused(tracer);
    end_frames(tracer.result.interrupted);
  }
  stop(report::Reason::interrupted, what);
}

// Native code may not read the contents of a pre-existing exception group: they would not be guarded.
void RaisedExceptions::check_group(Borrowed exception, int depth) {
  constexpr int kDeepest = 100;
  auto* group = reinterpret_cast<PyTypeObject*>(PyExc_BaseExceptionGroup);
  if (exception && PyExceptionInstance_Check(exception.get())) guard_order_of_bases(t, exception.type());
  if (!exception || !PyObject_TypeCheck(exception.get(), group)) return;
  if (depth > kDeepest || t.lifter.known(exception) != nullptr)
    stop(report::Reason::native_call, "a pre-existing exception group is iterated over");
  PyObject* parts = exception.as<PyBaseExceptionGroupObject>()->excs;
  for (Py_ssize_t i = 0; parts != nullptr && i < PyTuple_GET_SIZE(parts); i++)
    check_group(PyTuple_GET_ITEM(parts, i), depth + 1);
}

void RaisedExceptions::before_raise(Ref* exception) {
  if (PyExceptionClass_Check(exception->get())) {
    PyObject* arguments[] = {nullptr};
    Ref made = call(t, {*exception, arguments + 1, 0, {}});
    if (made.type() != exception->as<PyTypeObject>())
      stop(report::Reason::native_call, "a raise of a class that makes something else");
    *exception = std::move(made);
  }
  // Its context, cause and traceback would be mutated.
  if (t.lifter.known(*exception) != nullptr && PyExceptionInstance_Check(exception->get()))
    stop(report::Reason::preexisting_exception, exception->type()->tp_name);
  if (!PyErr_GivenExceptionMatches(exception->get(), PyExc_Exception)) t.lifter.note_made_here(*exception);
}

// The message of an exception: a str that is not normalized to an instance yet, or the first argument of one.
static void note_message(PyObject* value, std::unordered_set<std::string>* texts) {
  if (value == nullptr) return;
  if (PyExceptionInstance_Check(value) && PyTuple_GET_SIZE(reinterpret_cast<PyBaseExceptionObject*>(value)->args) > 0)
    value = PyTuple_GET_ITEM(reinterpret_cast<PyBaseExceptionObject*>(value)->args, 0);
  if (!PyUnicode_Check(value)) return;
  const SavedError raised;
  if (const char* text = PyUnicode_AsUTF8(value)) texts->insert(text);
  PyErr_Clear();
}

void RaisedExceptions::raising() {
  PyObject* type = PyErr_Occurred();
  if (type == nullptr) return;
  if (is_resource_error(type)) stop(report::Reason::raises, reinterpret_cast<PyTypeObject*>(type)->tp_name);
  // An exception that torch raised on fake tensors is never the program's.
  if (const fake::Failure* failure = t.session.failure()) {
    stop(
        failure->kind == fake::FailureKind::DataDependent ? report::Reason::data_dependent : report::Reason::torch_call,
        failure->op + ": " + failure->reason);
  }
  if (is_recorder_error(type)) stop(report::Reason::torch_call, reinterpret_cast<PyTypeObject*>(type)->tp_name);
  PyObject* value = raised_value();
  // Raised by native code that checks for signals, or that runs code which does.
  const bool is_preexisting =
      value != nullptr && (value == callers_exception.get() || t.lifter.known(value) != nullptr);
  if (PyErr_GivenExceptionMatches(type, PyExc_KeyboardInterrupt) && !is_preexisting && is_interrupt(t))
    stop_for_interrupt(t, "native code");
  // Eager may warn, ignore it or raise.
  if (lift::is_numpy_error(type, value)) stop(report::Reason::native_call, "a numpy floating-point error");
  // The program sees a read-only copy of a pre-existing array.
  if (t.lifter.has_arrays() && lift::is_read_only_error(type, value))
    stop(report::Reason::native_call, "a write to a pre-existing array");
  note_message(value, &raised_texts);
  if (PyErr_GivenExceptionMatches(type, PyExc_TypeError)) {
    const SavedError raised;
    t.lifter.functions->guard_defaults();
  }
  if (is_preexisting && PyExceptionInstance_Check(value)) {
    stop(report::Reason::preexisting_exception, Py_TYPE(value)->tp_name);
  }
  if (!t.frames->held_frames.empty() && !generators.empty()) {
    cpython::Frame* frame = cpython::current_frame(PyThreadState_Get());
    if (frame != nullptr && t.frames->is_held_by_caller(frame)) stop(report::Reason::last_reference, "generator");
  }
  if (!callers_exception_used_) {
    const SavedError raised;
    use_callers_exception();
  }
}

void RaisedExceptions::use_callers_exception() {
  callers_exception_used_ = true;
  lift::Source* source = t.tree->child(t.lifter.constant(query_of_handled()), lift::Access::kQuery);
  (void)t.lifter.lift(callers_exception ? Borrowed(callers_exception) : Borrowed(Py_None), source);
}

// A user's signal handler is not part of the program: it runs concretely, and an exception from it ends the trace.
int RaisedExceptions::handle_breaker(PyThreadState* ts) {
  int status;
  {
    Paused paused(t);
    const lift::NumpyErrorsAsBefore as_before;
    // Other threads, and signal handlers, see torch's flags as they were before the trace.
    const std::optional<fake::Flags> flags = t.recorder.watches_flags() ? fake::Flags::now() : std::nullopt;
    if (flags) t.result.flags_before->apply();
    status = cpython::handle_breaker(ts);
    if (flags) flags->apply();
  }
  if (status < 0) {
    t.result.interrupted = cpython::take_raised();
    t.stop_here(report::Reason::interrupted, t.result.interrupted.type()->tp_name);
  }
  return status;
}

// Called whenever a generator's frame has run, and for the generators that the chain holds. Closing one that is
// suspended in a try runs it again, so it is tracked here as long as it is alive; no strong reference to it is kept.
void RaisedExceptions::note_generator(Borrowed generator, bool preexisting) {
  auto* object = generator.as<PyGenObject>();
  const bool waits = cpython::is_suspended(object) &&
                     PyBytes_GET_SIZE(cpython::code_of(cpython::frame_of_generator(object))->co_exceptiontable) > 0;
  if (!waits) {
    generators.erase(generator.get());
    return;
  }
  Ref& reference = generators[generator.get()];
  if (preexisting) {
    preexisting_generators_.insert(generator.get());
  } else if (preexisting_generators_.count(generator.get()) == 0 &&
             (!reference || PyWeakref_GET_OBJECT(reference.get()) != generator.get())) {
    const SavedError on_its_way;
    reference = Ref::steal(PyWeakref_NewRef(generator.get(), nullptr));
    if (!reference) PyErr_Clear();
  }
}

// A generator in a reference cycle would be closed by the cycle collector, and run, long after the trace.
void RaisedExceptions::end_generators() {
  std::vector<Ref> open;
  for (const auto& [address, reference] : generators) {
    if (!reference) continue;
    Ref generator = Ref::share(PyWeakref_GET_OBJECT(reference.get()));
    if (generator.get() == address && t.lifter.known(generator) == nullptr) open.push_back(std::move(generator));
  }
  generators.clear();
  for (const Ref& generator : open) {
    if (!Ref::steal(PyObject_CallMethod(generator.get(), "close", nullptr))) PyErr_Clear();
  }
}

// The frames of a traceback keep their locals alive: a generator that is suspended there would be closed when the
// exception is deallocated, which no residual program does.
Ref RaisedExceptions::take_exit() {
  if (!generators.empty()) {
    const Discarding discarding;
    PyErr_Clear();
    return {};
  }
  t.result.raises = true;
  exit = cpython::take_raised();
  return Ref(exit);
}

void RaisedExceptions::clear_frame(Borrowed frame) {
  Ref code = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame.as<PyFrameObject>())));
  const bool suspends = (code.as<PyCodeObject>()->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0;
  if (!suspends) PyFrame_Type.tp_clear(frame.get());
}

void RaisedExceptions::clear_frames(Borrowed exception, int depth) {
  constexpr int kDeepest = 100;
  if (exception == Borrowed(callers_exception) || t.lifter.known(exception) != nullptr) return;
  auto* e = exception.as<PyBaseExceptionObject>();
  Ref traceback = Ref::steal(std::exchange(e->traceback, nullptr));
  // `e.__traceback__ = None`, and what `except*` merges, leave None in the field.
  if (!traceback || depth > kDeepest) return;
  if (!PyTraceBack_Check(traceback.get())) traceback = {};
  for (auto* entry = traceback.as<PyTracebackObject>(); entry != nullptr; entry = entry->tb_next) {
    clear_frame(reinterpret_cast<PyObject*>(entry->tb_frame));
  }
  if (e->cause != nullptr) clear_frames(e->cause, depth + 1);
  if (e->context != nullptr) clear_frames(e->context, depth + 1);
}

void RaisedExceptions::note_abandoned(PyFrameObject* frame) {
  if (frame != nullptr) abandoned_frames.push_back(Ref::share(reinterpret_cast<PyObject*>(frame)));
}

}  // namespace alternator::trace
