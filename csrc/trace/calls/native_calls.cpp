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
#include "graph/run/torch_warnings.h"
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

namespace alternator::trace {

// A method of a dict, set or list of the trace: its argument is a key or an element.
static bool is_keyed_method(Borrowed callable) {
  if (!PyCFunction_Check(callable.get())) return false;
  PyObject* self = PyCFunction_GET_SELF(callable.get());
  return self != nullptr && (PyDict_CheckExact(self) || PySet_CheckExact(self) || PyList_CheckExact(self));
}

// A builtin method and what it is called on, whether bound or not.
struct NativeMethod {
  const char* name = "";
  Borrowed self;
  PyObject* const* arguments = nullptr;
  size_t count = 0;
};
static NativeMethod method_call(Borrowed callable, PyObject* const* arguments, size_t count) {
  if (PyCFunction_Check(callable.get()))
    return {callable.as<PyCFunctionObject>()->m_ml->ml_name, PyCFunction_GET_SELF(callable.get()), arguments, count};
  if (Py_IS_TYPE(callable.get(), &PyMethodDescr_Type) && count > 0)
    return {callable.as<PyMethodDescrObject>()->d_method->ml_name, arguments[0], arguments + 1, count - 1};
  return {};
}

// What a pre-existing class reports of related classes is not guarded.
static bool looks_around_class(const lift::Lifter& lifter, const NativeMethod& call) {
  if (!call.self || !PyType_Check(call.self.get()) || lifter.made_here(call.self)) return false;
  return strcmp(call.name, "__subclasses__") == 0 || strcmp(call.name, "mro") == 0 || strcmp(call.name, "__dir__") == 0;
}

// Methods that change at most one element of a set, and whether their result depends on the order of the others.
struct SetMethod {
  const char* name;
  lift::SetStepKind kind;
  bool looks;
};
static const SetMethod* set_method(const NativeMethod& call) {
  static constexpr SetMethod kMethods[] = {{"add", lift::SetStepKind::kAdded, false},
                                           {"discard", lift::SetStepKind::kDiscarded, false},
                                           {"remove", lift::SetStepKind::kDiscarded, false},
                                           {"clear", lift::SetStepKind::kCleared, false},
                                           {"pop", lift::SetStepKind::kPopped, true}};
  for (const SetMethod& method : kMethods) {
    if (call.self && PySet_CheckExact(call.self.get()) && strcmp(call.name, method.name) == 0) return &method;
  }
  return nullptr;
}

// Appending to a pre-existing list reads none of its elements; adding to a pre-existing set does not read its order.
static bool mutates_without_reading(const NativeMethod& call) {
  if (const SetMethod* method = set_method(call)) return !method->looks;
  return call.self && PyList_CheckExact(call.self.get()) && call.count == 1 && strcmp(call.name, "append") == 0;
}

// Methods and functions that move their arguments, and compute nothing with them.
static bool only_moves(const NativeMethod& call, const std::string& name) {
  if (name == "builtins.len" || name == "builtins.isinstance" || name == "builtins.iter" || name == "builtins.next")
    return true;
  PyObject* self = call.self.get();
  if (self == nullptr || !(PyList_Check(self) || PyDict_Check(self) || PyAnySet_Check(self) || PyTuple_Check(self) ||
                           PyObject_TypeCheck(self, lift::known_types().deque))) {
    return false;
  }
  for (const char* compares : {"sort", "index", "count", "remove"}) {
    if (strcmp(call.name, compares) == 0) return false;
  }
  return true;
}

// Container methods that store a value unchanged.
static bool only_keeps(const NativeMethod& call) {
  PyObject* self = call.self.get();
  if (self == nullptr) return false;
  if (PyList_CheckExact(self) || Py_IS_TYPE(self, lift::known_types().deque))
    return strcmp(call.name, "append") == 0 || strcmp(call.name, "insert") == 0 || strcmp(call.name, "appendleft") == 0;
  return PyDict_CheckExact(self) && (strcmp(call.name, "setdefault") == 0 || strcmp(call.name, "get") == 0);
}

Ref call_native(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  const Natives& natives = Natives::table();
  const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
  PyObject* self = PyCFunction_Check(callable.get()) ? PyCFunction_GET_SELF(callable.get()) : nullptr;
  const std::string name = native_name(callable);
  if (name.ends_with("is_grad_enabled")) t.gradient_questions++;
  const NativeMethod method = method_call(callable, arguments, total);
  const bool unseen = mutates_without_reading(method);
  if (self != nullptr && !PyModule_Check(self) && !PyType_Check(self)) {
    if (!unseen) t.lifter.escape(self);
    if (!reads_attributes(self)) check_use(t, self, name.c_str());
    if (PySlice_Check(self) && t.array_nodes->holds_symbolic_array(self))
      stop(report::Reason::data_dependent, name + " of a slice");
    if (PyExceptionInstance_Check(self) && t.lifter.known(self) != nullptr)
      stop(report::Reason::preexisting_exception, name);
  }
  if (unseen)
    escape_all(t, method.arguments, method.count);
  else
    escape_all(t, arguments, total);
  if (seeds_at_random(method.name, method.self, method.arguments, method.count))
    stop(report::Reason::native_call, "a random generator without a seed");
  if (looks_around_class(t.lifter, method)) {
    if (total == 0 && self != nullptr && name.ends_with(".__subclasses__")) return subclasses_of(t, self);
    stop(report::Reason::native_call, name);
  }
  if (name.ends_with(".throw")) {
    for (size_t i = 0; i < total; i++) {
      if (PyExceptionInstance_Check(arguments[i]) && t.lifter.known(arguments[i]) != nullptr)
        stop(report::Reason::preexisting_exception, name);
    }
  }
  check_symbols(t, callable, name, arguments, total);
  check_native_use(t, callable, arguments, total);
  bool tensors = false;
  for (size_t i = 0; i < total; i++) {
    const bool as_key = is_identity(arguments[i]) && is_keyed_method(callable);
    if (as_key && may_hold_address(self)) stop(report::Reason::identity_number, name);
    const bool looks = (callable != Borrowed(natives.isinstance) && !as_key) || is_deferred_random(arguments[i]) ||
                       is_deferred_string(arguments[i]) || is_hook_handle(arguments[i]) ||
                       PyWeakref_CheckProxy(arguments[i]);  // a proxy claims the class of its referent
    const bool keeps_array = i + 1 == total && lift::is_array(arguments[i]) && only_keeps(method);
    if (PySlice_Check(arguments[i]) && t.array_nodes->holds_symbolic_array(arguments[i]))
      stop(report::Reason::data_dependent, name + " of a slice");
    const bool is_called = name == "builtins.callable" && is_deferred_string(arguments[i]);  // no string is callable
    if (looks && !keeps_array && !is_called && !fake::is_symbol(arguments[i])) check_use(t, arguments[i], name.c_str());
    tensors = tensors || graph::is_tensor(arguments[i]);
  }
  if (method.self && PyUnicode_Check(method.self.get()) && is_formatter(method.name)) {
    // It reads attributes and items natively, which is safe for plain values only.
    for (size_t i = 0; i < method.count && has_field_path(method.self); i++) {
      if (!lift::is_plain(method.arguments[i]))
        stop(report::Reason::native_call, std::string("str.") + method.name + " with a field path");
    }
  }
  std::optional<Paused> paused;
  if ((name == "builtins.isinstance" || name == "builtins.issubclass") && total == 2) {
    Borrowed subject = arguments[0];
    if (name == "builtins.isinstance" && fake::is_truth_symbol(subject)) {
      PyObject* as_bool[] = {nullptr, Py_True, arguments[1]};
      return call_native(t, callable, as_bool + 1, 2, {});
    }
    if (name == "builtins.isinstance" && is_tensor_type(arguments[1]))  // a fake tensor would answer with its own type
      return Ref::share(graph::is_tensor(subject) && is_of_tensor_type(t, subject, arguments[1]) ? Py_True : Py_False);
    if (name == "builtins.isinstance" || !PyType_Check(subject.get()))
      subject = reinterpret_cast<PyObject*>(subject.type());
    if (check_instance_test(t, subject, arguments[1])) paused.emplace(t);
  }
  if (Ref reduced = reduce(t, callable, arguments, total, name)) return reduced;
  for (size_t i = 0; callable == Borrowed(natives.compile) && i < total; i++) {
    if (!lift::is_plain(arguments[i])) stop(report::Reason::native_call, "compile of something other than a string");
  }
  check_class_call(t, callable, arguments, total);
  std::optional<lift::WarningsRaise> warnings;
  if (check_array_arguments(callable, name, arguments, total)) warnings.emplace();
  for (size_t i = 0; i < total && !only_moves(method, name); i++) check_arrays_within(t, arguments[i]);
  if (method.self && !only_moves(method, name)) check_arrays_within(t, method.self);
  const bool makes_class = t.classes->begin_call(callable, arguments, positional);
  t.session.clear_failure();
  const SetMethod* const changes = set_method(method);
  if (changes != nullptr)
    t.lifter.containers->before_set_step(method.self, changes->kind, method.count > 0 ? method.arguments[0] : nullptr);
  const LookingUp looking_up(name == "dict.get" && total > 0 ? arguments[0] : Py_None);
  const bool adds = name == "builtins.sum" || name == "builtins.any" || name == "builtins.all";
  const Reading reading(reads_digits(callable, name), adds);
  const size_t given_before = integers_given();
  const bool grad_before = c10::GradMode::is_enabled();
  // Native code warns under the real filters, not those that the program has set in the trace; and it would warn on
  // every call, not only on the traced one.
  std::optional<graph::WarningsKept> kept;
  if (!warnings) kept.emplace(graph::WarningsKept::Kind::kRun);
  Ref result = Ref::steal(
      PyObject_Vectorcall(callable.get(), arguments, positional | PY_VECTORCALL_ARGUMENTS_OFFSET, keyword_names.get()));
  if (kept && !kept->take().empty() && !t.result.stopped) {
    PyErr_Clear();
    stop(report::Reason::native_call, name + " warns");
  }
  kept.reset();
  const bool added = !t.result.stopped && name == "builtins.sum" && integers_given() != given_before;
  if (added && !(result && Py_IS_TYPE(result.get(), &fake::int_symbol_type))) {
    PyErr_Clear();  // the int may be too large for a float
    stop(report::Reason::unknown_number, name);
  }
  if (!result) {
    if (!t.result.stopped && (t.session.failure() != nullptr || (tensors && self == nullptr))) stop_for_torch(t, name);
    if (warnings) t.arrays->check_numpy_error(name);
    throw PyError();
  }
  if (name.ends_with("._set_grad_enabled")) note_grad_set(grad_before, t.recorder);
  if (makes_class) t.classes->finish(result);
  if (changes != nullptr)
    t.lifter.containers->note_set_step(method.self, changes->kind, method.count > 0 ? method.arguments[0] : nullptr);
  if (PyCode_Check(result.get()) && (name == "builtins.compile" || name == "code.replace"))
    t.lifter.note_made_here(result);
  return result;
}

}  // namespace alternator::trace
