// Process-wide torch flags: the traced program reads and sets them; they are restored at the end of the trace.
#include "trace/torch/flag_calls.h"
#include "trace/calls/call_dispatch.h"
#include "trace/calls/reflective_builtins.h"
#include "trace/core/tracer.h"
#include "trace/higher_order/functorch.h"
#include "trace/stdlib/output_effects.h"

#include "lift/sources/plain.h"
#include "py/import.h"
#include "trace/calls/handlers.h"
#include "trace/calls/natives.h"

#include <sstream>

namespace alternator::trace {

namespace {

struct Function {
  uint8_t group = 0;
  PyObject* getter = nullptr;  // of a setter that is traced only where it sets the current value
};

// Setters that are traced only where they set the current value, each with its getter: torch does not expose the exact
// value of these flags, so it could not be restored.
constexpr std::pair<const char*, const char*> kSetUnchangedOnly[] = {
    {"_set_cudnn_allow_tf32", "_get_cudnn_allow_tf32"},
    {"_set_onednn_allow_tf32", "_get_onednn_allow_tf32"},
    {"_set_cudnn_depthwise_kernel", "_get_cudnn_depthwise_kernel"},
    {"_set_fp32_precision_setter", "_get_fp32_precision_getter"},
    {"_cuda_set_cudnn_benchmark_limit", "_cuda_get_cudnn_benchmark_limit"},
};

// What the handlers know of each function besides its use; filled by registration.
lift::PointerMap<PyObject, Function>& functions() {
  static auto* const table = new lift::PointerMap<PyObject, Function>;
  return *table;
}

// A function without arguments that calls `self`, a tuple of a getter and its arguments.
PyObject* call_getter(PyObject* self, PyObject*) {
  Ref arguments = Ref::steal(PyTuple_GetSlice(self, 1, PyTuple_GET_SIZE(self)));
  return arguments ? PyObject_Call(PyTuple_GET_ITEM(self, 0), arguments.get(), nullptr) : nullptr;
}
PyMethodDef call_getter_method = {"call_getter", call_getter, METH_NOARGS, nullptr};

bool is_known(Borrowed value) {
  if (!PyList_CheckExact(value.get())) return lift::is_plain(value.get());
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value.get()); i++)
    if (!lift::is_plain(PyList_GET_ITEM(value.get(), i))) return false;
  return true;
}

}  // namespace

void FlagCalls::use(uint8_t groups) {
  if (!t.result.flags_before) t.result.flags_before = fake::Flags::now();
  if (!t.result.flags_before)
    stop(report::Reason::native_call, "torch flags that were set through both the legacy and the new API");
  t.result.flag_groups |= groups;
}

void FlagCalls::use_for(const std::string& name) {
  if ((t.result.flag_groups & fake::kAttention) != 0) return;
  for (const char* word : {"attention", "transformer"})  // a transformer encoder layer is one call
    if (name.find(word) != std::string::npos) return use(fake::kAttention);
}

// The guard calls the getter again and compares its result.
Ref FlagCalls::ask(Borrowed getter, PyObject* const* arguments, size_t count) {
  Ref getter_call = checked(PyTuple_New(static_cast<Py_ssize_t>(count) + 1));
  PyTuple_SET_ITEM(getter_call.get(), 0, Py_NewRef(getter.get()));
  for (size_t i = 0; i < count; i++) {
    if (t.recorder.watches_flags() && PyUnicode_Check(arguments[i]) &&
        PyUnicode_CompareWithASCIIString(arguments[i], "matmul") == 0)
      stop(report::Reason::native_call, native_name(getter) + " after a flag was set");
    PyTuple_SET_ITEM(getter_call.get(), static_cast<Py_ssize_t>(i) + 1, Py_NewRef(arguments[i]));
  }
  if (count == 0) return trace::query(t, getter);
  // Sources are rooted in an object that the guards keep alive.
  Ref bound_getter = checked(PyCFunction_New(&call_getter_method, getter_call.get()));
  Ref holder = checked(PyTuple_Pack(1, bound_getter.get()));
  Ref value = checked(PyObject_CallNoArgs(bound_getter.get()));
  if (!lift::is_plain(value.get())) stop(report::Reason::native_call, native_name(getter));
  lift::Source* source = t.tree->child(t.lifter.constant(holder), lift::Access::kIndex, {}, 0);
  t.tree->guard(t.tree->child(source, lift::Access::kQuery), {lift::GuardKind::kEquals, Ref(value)});
  return value;
}

// Autocast caches the casts of weights per thread while a scope is open; no node represents that cache. Clearing it
// inside a scope observably drops the casts, and so does leaving the caller's last scope and entering another.
void FlagCalls::check_casts(bool clears, Borrowed callable) {
  const int caller_depth = nesting_before > 0 ? 1 : 0;  // see ThreadState
  const bool inside = fake::autocast_nesting() > caller_depth;
  if (clears ? inside : caller_depth != 0 && !inside) stop(report::Reason::native_call, native_name(callable));
  t.result.exit.clears_casts = t.result.exit.clears_casts || (clears && caller_depth == 0);
}

Ref FlagCalls::cast(const Call& call, bool clears) {
  check_casts(clears, call.callable);
  return run(call);
}

Ref FlagCalls::run(const Call& call) {
  return checked(PyObject_Vectorcall(call.callable.get(), call.arguments, call.positional, call.keyword_names.get()));
}

void FlagCalls::take_arguments(const Call& call) {
  escape_all(t, call);
  for (size_t i = 0; i < call.count(); i++)
    if (!is_known(call.arguments[i])) stop(report::Reason::native_call, native_name(call.callable));
}

Ref FlagCalls::get(const Call& call) {
  take_arguments(call);
  use(functions()[call.callable.get()].group);
  return run(call);
}

Ref FlagCalls::set(const Call& call) {
  take_arguments(call);
  use(functions()[call.callable.get()].group);
  const std::string name = native_name(call.callable);
  // A subgraph (a branch of a cond) would set it on one path only; a checkpoint sets it again in the backward pass.
  if (t.functorch->subgraph_depth != 0) stop(report::Reason::torch_call, name + " in a subgraph");
  if (t.recorder.is_checkpointed()) stop(report::Reason::torch_call, name + " in a checkpoint");
  if (!t.recorder.watch_flags()) stop(report::Reason::native_call, name);
  use(fake::kAttention | fake::kKernels);
  return run(call);
}

Ref FlagCalls::query(const Call& call) {
  take_arguments(call);
  if (call.keyword_names) stop(report::Reason::native_call, native_name(call.callable));
  return ask(call.callable, call.arguments, call.positional);
}

Ref FlagCalls::set_unchanged(const Call& call) {
  take_arguments(call);
  if (call.keyword_names || call.positional == 0) stop(report::Reason::native_call, native_name(call.callable));
  Ref now = ask(functions()[call.callable.get()].getter, call.arguments, call.positional - 1);
  Borrowed wanted = call.arguments[call.positional - 1];
  if (now.type() != wanted.type() || PyObject_RichCompareBool(now.get(), wanted.get(), Py_EQ) != 1)
    stop(report::Reason::native_call, native_name(call.callable));
  Ref given = checked(PyTuple_New(static_cast<Py_ssize_t>(call.positional)));
  for (size_t i = 0; i < call.positional; i++)
    PyTuple_SET_ITEM(given.get(), static_cast<Py_ssize_t>(i), Py_NewRef(call.arguments[i]));
  t.output->add_effect(call.callable, std::move(given), {});
  return Ref::share(Py_None);
}

bool register_flags(Handlers& handlers) {
  Ref core = import_module("torch._C");
  const auto add = [&](const std::string& name, Function function, Handler handler) {
    PyObject* found = PyObject_GetAttrString(core.get(), name.c_str());
    if (found == nullptr) return PyErr_Clear();  // only other builds of torch have it
    functions()[found] = function;
    handlers.add(found, handler);
  };
  constexpr Handler kGet = [](Tracer& t, const Call& call) { return t.flags->get(call); };
  constexpr Handler kSet = [](Tracer& t, const Call& call) { return t.flags->set(call); };
  constexpr Handler kQuery = [](Tracer& t, const Call& call) { return t.flags->query(call); };
  constexpr Handler kSetUnchanged = [](Tracer& t, const Call& call) { return t.flags->set_unchanged(call); };
  for (const fake::FlagRow& row : fake::Flags::rows()) {
    std::istringstream words(row.getters);
    for (std::string word; words >> word;) add(word, {row.group}, kGet);
    add(row.setter, {row.group}, kSet);
  }
  for (const auto& [setter, getter] : kSetUnchangedOnly) {
    PyObject* gets = PyObject_GetAttrString(core.get(), getter);
    if (gets == nullptr) {
      PyErr_Clear();
      continue;
    }
    add(setter, {0, gets}, kSetUnchanged);
    if (PyObject_HasAttrString(core.get(), setter) != 0) add(getter, {}, kQuery);
  }
  add("autocast_increment_nesting", {}, [](Tracer& t, const Call& call) { return t.flags->cast(call, false); });
  add("clear_autocast_cache", {}, [](Tracer& t, const Call& call) { return t.flags->cast(call, true); });
  return true;
}

}  // namespace alternator::trace
