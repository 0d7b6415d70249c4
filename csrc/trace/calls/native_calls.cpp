// Calls of native code: its arguments are checked first, and its side effects are noted.
#include "trace/calls/native_calls.h"
#include "trace/calls/call_dispatch.h"
#include "trace/calls/instance_tests.h"
#include "trace/calls/native_callbacks.h"
#include "trace/calls/reflective_builtins.h"
#include "trace/core/tracer.h"
#include "trace/numpy/array_nodes.h"
#include "trace/opcodes/class_creation.h"
#include "trace/opcodes/items.h"
#include "trace/stdlib/attribute_readers.h"
#include "trace/symbolic/unbacked_arithmetic.h"
#include "trace/torch/legacy_tensors.h"
#include "trace/torch/torch_calls.h"

#include "cpython/objects.h"
#include "fake/numpy_scalar_input.h"
#include "graph/record/torch_warnings.h"
#include "lift/lifting/containers.h"
#include "py/names.h"
#include "trace/calls/bound_slots.h"
#include "trace/calls/native_reads.h"
#include "trace/calls/natives.h"
#include "trace/numpy/concrete_arrays.h"
#include "trace/soundness/finalizers.h"
#include "trace/stdlib/python_rng_seeds.h"
#include "trace/torch/grad_mode_blocks.h"
#include "trace/torch/tensor_hooks.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <optional>

namespace alternator::trace {

namespace {

// A call, what its row of natives.def says of it, and what it is called on.
struct NativeCall {
  const Call& call;
  NativeFlags flags;
  // What a builtin is bound to: the object of a method, or a class, or a module.
  PyObject* bound_to = nullptr;
  // The object of a method, bound or not, and the arguments after it.
  Borrowed self;
  PyObject* const* rest = nullptr;
  size_t rest_count = 0;

  PyObject* const* begin() const { return call.arguments; }
  size_t count() const { return call.count(); }
  std::string name() const { return native_name(call.callable); }  // for messages
  bool is(PyObject* identity) const { return call.callable == Borrowed(identity); }
  PyObject* first() const { return rest_count > 0 ? rest[0] : nullptr; }
};

NativeCall described(const Call& call) {
  NativeCall native{call, Natives::table().flags(call.callable)};
  const size_t count = call.count();
  if (PyCFunction_Check(call.callable.get())) {
    native.bound_to = PyCFunction_GET_SELF(call.callable.get());
    native.self = native.bound_to;
    native.rest = call.arguments;
    native.rest_count = count;
  } else if (Py_IS_TYPE(call.callable.get(), &PyMethodDescr_Type) && count > 0) {
    native.self = call.arguments[0];
    native.rest = call.arguments + 1;
    native.rest_count = count - 1;
  }
  return native;
}

// A method of a dict, set or list of the trace: its argument is a key or an element.
bool is_keyed_method(const NativeCall& native) {
  PyObject* self = native.bound_to;
  return self != nullptr && (PyDict_CheckExact(self) || PySet_CheckExact(self) || PyList_CheckExact(self));
}

// How a method changes at most one element of a set, or removes all.
std::optional<lift::SetStepKind> set_step(const NativeCall& native) {
  if (!native.self || !PySet_CheckExact(native.self.get())) return {};
  if (native.flags.has(native::kAddsElement)) return lift::SetStepKind::kAdded;
  if (native.flags.has(native::kDiscardsElement)) return lift::SetStepKind::kDiscarded;
  if (native.flags.has(native::kClearsSet)) return lift::SetStepKind::kCleared;
  if (native.flags.has(native::kPopsElement)) return lift::SetStepKind::kPopped;
  return {};
}

// Appending to a pre-existing list reads none of its elements; adding to a pre-existing set does not read its order.
bool mutates_without_reading(const NativeCall& native) {
  if (!native.flags.has(native::kMutatesUnread) || !native.self) return false;
  return PySet_CheckExact(native.self.get()) || (PyList_CheckExact(native.self.get()) && native.rest_count == 1);
}

// Functions and methods that move their arguments, and compute nothing with them.
bool only_moves(const NativeCall& native) {
  if (native.flags.has(native::kNoElements)) return true;
  PyObject* self = native.self.get();
  const bool is_container =
      self != nullptr && (PyList_Check(self) || PyDict_Check(self) || PyAnySet_Check(self) || PyTuple_Check(self) ||
                          PyObject_TypeCheck(self, lift::known_types().deque));
  return is_container && !native.flags.has(native::kCompares);
}

// Methods of exactly builtin containers that store a value unchanged.
bool only_keeps(const NativeCall& native) {
  PyObject* self = native.self.get();
  return self != nullptr && native.flags.has(native::kKeeps) &&
         (PyList_CheckExact(self) || PyDict_CheckExact(self) || Py_IS_TYPE(self, lift::known_types().deque));
}

// What a bound method reads of its object, before anything else: only then is the object's private copy complete.
void prepare_self(Tracer& t, const NativeCall& native) {
  PyObject* self = native.bound_to;
  if (self == nullptr || PyModule_Check(self) || PyType_Check(self)) return;
  if (!mutates_without_reading(native)) t.lifter.escape(self);
  if (!reads_attributes(self)) check_use(t, self, native.call.callable);
  if (PySlice_Check(self) && t.array_nodes->holds_symbolic_array(self))
    stop(report::Reason::data_dependent, native.name() + " of a slice");
  if (PyExceptionInstance_Check(self) && t.lifter.known(self) != nullptr)
    stop(report::Reason::preexisting_exception, native.name());
}

// What a pre-existing class reports of related classes is not guarded; but for its subclasses, which are. Null: it is
// no such call.
Ref related_classes(Tracer& t, const NativeCall& native) {
  if (!native.flags.has(native::kReadsRelated) || !native.self || !PyType_Check(native.self.get()) ||
      t.lifter.made_here(native.self))
    return {};
  if (native.count() == 0 && is_same_builtin(native.call.callable, Natives::table().subclasses))
    return subclasses_of(t, native.self);
  stop(report::Reason::native_call, native.name());
}

// An exception that existed before the call would be raised as it is, not as the trace's private view of it.
void check_thrown(Tracer& t, const NativeCall& native) {
  for (size_t i = 0; native.flags.has(native::kThrows) && i < native.count(); i++) {
    PyObject* argument = native.begin()[i];
    if (PyExceptionInstance_Check(argument) && t.lifter.known(argument) != nullptr)
      stop(report::Reason::preexisting_exception, native.name());
  }
}

// Every argument that native code inspects must be a value that it may see.
void check_arguments(Tracer& t, const NativeCall& native) {
  const Natives& natives = Natives::table();
  for (size_t i = 0; i < native.count(); i++) {
    PyObject* argument = native.begin()[i];
    const bool as_key = is_identity(argument) && is_keyed_method(native);
    if (as_key && may_hold_address(native.bound_to)) stop(report::Reason::object_id, native.name());
    const bool looks = (!native.is(natives.isinstance) && !as_key) || is_deferred_random(argument) ||
                       is_deferred_string(argument) || is_hook_handle(argument) ||
                       PyWeakref_CheckProxy(argument);  // a proxy claims the class of its referent
    const bool keeps_array = i + 1 == native.count() && lift::is_array(argument) && only_keeps(native);
    if (PySlice_Check(argument) && t.array_nodes->holds_symbolic_array(argument))
      stop(report::Reason::data_dependent, native.name() + " of a slice");
    const bool is_called = native.is(natives.callable) && is_deferred_string(argument);  // no string is callable
    if (looks && !keeps_array && !is_called && !fake::is_symbol(argument)) check_use(t, argument, native.call.callable);
  }
}

// A format string reads attributes and items natively, which is safe for plain values only.
void check_field_paths(const NativeCall& native) {
  if (!native.flags.has(native::kFormats) || !native.self || !PyUnicode_Check(native.self.get())) return;
  for (size_t i = 0; i < native.rest_count && has_field_path(native.self); i++) {
    if (!lift::is_plain(native.rest[i]))
      stop(report::Reason::native_call,
           "str." + std::string(defined_name(native.call.callable)) + " with a field path");
  }
}

// isinstance() and issubclass(). Null: native code answers, and meanwhile the trace may have to be `paused`.
Ref instance_test(Tracer& t, const NativeCall& native, std::optional<Paused>* paused) {
  const Natives& natives = Natives::table();
  const bool of_instance = native.is(natives.isinstance);
  if (!(of_instance || native.is(natives.issubclass)) || native.count() != 2) return {};
  Borrowed subject = native.begin()[0];
  Borrowed classes = native.begin()[1];
  if (of_instance && fake::is_truth_symbol(subject)) {
    PyObject* as_bool[] = {nullptr, Py_True, classes.get()};
    return trace::call(t, {native.call.callable, as_bool + 1, 2, {}});
  }
  if (of_instance && is_tensor_type(classes))  // a fake tensor would answer with its own type
    return Ref::share(graph::is_tensor(subject) && is_of_tensor_type(t, subject, classes) ? Py_True : Py_False);
  if (of_instance || !PyType_Check(subject.get())) subject = reinterpret_cast<PyObject*>(subject.type());
  if (check_instance_test(t, subject, classes)) paused->emplace(t);
  return {};
}

void check_compiled_text(const NativeCall& native) {
  for (size_t i = 0; native.is(Natives::table().compile) && i < native.count(); i++) {
    if (!lift::is_plain(native.begin()[i]))
      stop(report::Reason::native_call, "compile of something other than a string");
  }
}

// Arrays in containers that native code computes with.
void check_inner_arrays(Tracer& t, const NativeCall& native) {
  if (only_moves(native)) return;
  for (size_t i = 0; i < native.count(); i++) check_arrays_within(t, native.begin()[i]);
  if (native.self) check_arrays_within(t, native.self);
}

// dict.get() of exactly a dict.
bool looks_up_key(const NativeCall& native) {
  return native.count() > 0 && is_same_builtin(native.call.callable, Natives::table().dict_get) &&
         (native.bound_to == nullptr || PyDict_CheckExact(native.bound_to));
}

// Runs the native code; what it calls back comes to the tracer.
Ref run_native(Tracer& t, const NativeCall& native, bool raises_warnings) {
  const Call& call = native.call;
  const size_t given_before = integers_given();
  // Native code warns under the real filters, not those that the program has set in the trace; and it would warn on
  // every call, not only on the traced one.
  std::optional<graph::WarningsKept> kept;
  if (!raises_warnings) kept.emplace(graph::WarningsKept::Kind::kRun);
  Ref result = Ref::steal(PyObject_Vectorcall(
      call.callable.get(), call.arguments, call.positional | PY_VECTORCALL_ARGUMENTS_OFFSET, call.keyword_names.get()));
  if (kept && !kept->take().empty() && !t.result.stopped) {
    PyErr_Clear();
    stop(report::Reason::native_call, native.name() + " warns");
  }
  kept.reset();
  const bool added = !t.result.stopped && native.is(Natives::table().sum) && integers_given() != given_before;
  if (added && !(result && Py_IS_TYPE(result.get(), &fake::int_symbol_type))) {
    PyErr_Clear();  // the int may be too large for a float
    stop(report::Reason::unbacked_value, native.name());
  }
  return result;
}

// Why it failed: torch, numpy, or an exception of the program.
[[noreturn]] void refuse_failure(Tracer& t, const NativeCall& native, bool raises_warnings) {
  const bool of_tensors =
      native.bound_to == nullptr && std::any_of(native.begin(), native.begin() + native.count(),
                                                [](PyObject* argument) { return graph::is_tensor(argument); });
  if (!t.result.stopped && (t.session.failure() != nullptr || of_tensors)) stop_for_torch(t, native.name());
  if (raises_warnings) t.arrays->check_numpy_error(native.name());
  throw PyError();
}

// Runs it between the notes of what it changes.
Ref run_with_effects(Tracer& t, const NativeCall& native, bool raises_warnings) {
  const Call& call = native.call;
  const bool makes_class = t.classes->begin_call(call.callable, call.arguments, call.positional);
  t.session.clear_failure();
  const std::optional<lift::SetStepKind> step = set_step(native);
  if (step) t.lifter.containers->before_set_step(native.self, *step, native.first());
  const LookingUp looking_up(looks_up_key(native) ? native.begin()[0] : Py_None);
  const Reading reading(reads_digits(call.callable, native.flags), native.flags.has(native::kAdds));
  const bool grad_before = c10::GradMode::is_enabled();
  Ref result = run_native(t, native, raises_warnings);
  if (!result) refuse_failure(t, native, raises_warnings);
  if (native.flags.has(native::kSetsGradMode)) note_grad_set(grad_before, t.recorder);
  if (makes_class) t.classes->finish(result);
  if (step) t.lifter.containers->note_set_step(native.self, *step, native.first());
  if (native.flags.has(native::kMakesCode) && PyCode_Check(result.get())) t.lifter.note_made_here(result);
  return result;
}

}  // namespace

Ref call_native(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  const Call call{callable, arguments, positional, keyword_names};
  const NativeCall native = described(call);
  if (native.flags.has(native::kReadsGradMode)) t.autograd_queries++;
  // Lifts what native code will read: the checks below look at whole values.
  prepare_self(t, native);
  if (mutates_without_reading(native))
    escape_all(t, native.rest, native.rest_count);
  else
    escape_all(t, arguments, native.count());
  // Calls that never run natively come first: the checks of arguments would stop some of them for another reason.
  if (seeds_at_random(native.flags, native.self, native.rest, native.rest_count))
    stop(report::Reason::native_call, "a random generator without a seed");
  if (Ref answer = related_classes(t, native)) return answer;
  check_thrown(t, native);
  // Symbols before other values: check_use() has a less precise reason for them.
  check_symbols(t, callable, native.flags, arguments, native.count());
  check_native_use(t, callable, native.flags, arguments, native.count());
  check_arguments(t, native);
  check_field_paths(native);
  // Calls that the tracer answers itself need arguments that are checked.
  std::optional<Paused> paused;
  if (Ref answer = instance_test(t, native, &paused)) return answer;
  if (Ref reduced = reduce(t, callable, native.flags, arguments, native.count())) return reduced;
  check_compiled_text(native);
  check_class_call(t, callable, arguments, native.count());
  // Arrays last: what uses them is guarded by their contents. Where there are any, a warning of numpy is an error.
  std::optional<lift::WarningsRaise> warnings;
  if (check_array_arguments(callable, arguments, native.count())) warnings.emplace();
  check_inner_arrays(t, native);
  return run_with_effects(t, native, warnings.has_value());
}

}  // namespace alternator::trace
