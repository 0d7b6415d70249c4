// Process-wide torch flags: the traced program reads and sets them; they are restored at the end of the trace.
#include "trace/torch/flag_calls.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"
#include "trace/higher_order/functorch.h"
#include "trace/stdlib/output_effects.h"

#include "lift/sources/plain.h"
#include "py/import.h"
#include "py/lasting.h"
#include "trace/calls/natives.h"

#include <sstream>

namespace alternator::trace {

namespace {

enum class Use : uint8_t { kGet, kSet, kQuery, kSetUnchanged, kEnterAutocast, kClearCasts };

struct Function {
  Use use;
  uint8_t group = 0;
  PyObject* getter = nullptr;  // kSetUnchanged
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

using Functions = lift::PointerMap<PyObject, Function>;

const Functions& functions() {
  static constinit Lasting<const Functions*> lasting;
  return *lasting.get([] {
    auto* found = new Functions;
    Ref core = import_module("torch._C");
    // Null: only other builds of torch have it.
    const auto of = [&](const std::string& name) {
      PyObject* function = PyObject_GetAttrString(core.get(), name.c_str());
      if (function == nullptr) PyErr_Clear();
      return function;
    };
    for (const fake::FlagRow& row : fake::Flags::rows()) {
      std::istringstream words(row.getters);
      for (std::string word; words >> word;)
        if (PyObject* function = of(word)) (*found)[function] = {Use::kGet, row.group};
      if (PyObject* function = of(row.setter)) (*found)[function] = {Use::kSet, row.group};
    }
    for (const auto& [setter, getter] : kSetUnchangedOnly) {
      PyObject *sets = of(setter), *gets = of(getter);
      if (sets == nullptr || gets == nullptr) continue;
      (*found)[sets] = {Use::kSetUnchanged, 0, gets};
      (*found)[gets] = {Use::kQuery};
    }
    if (PyObject* function = of("autocast_increment_nesting")) (*found)[function] = {Use::kEnterAutocast};
    if (PyObject* function = of("clear_autocast_cache")) (*found)[function] = {Use::kClearCasts};
    return const_cast<const Functions*>(found);
  });
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

void load_flags() { (void)functions(); }

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
  if (count == 0) return query(t, getter);
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

Ref FlagCalls::call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  if (!PyCFunction_Check(callable.get())) return {};
  const auto found = functions().find(callable.get());
  if (found == functions().end()) return {};
  const Function& function = found->second;
  if (function.use == Use::kEnterAutocast || function.use == Use::kClearCasts) {
    check_casts(function.use == Use::kClearCasts, callable);
    return checked(PyObject_Vectorcall(callable.get(), arguments, positional, keyword_names.get()));
  }
  const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
  escape_all(t, arguments, total);
  for (size_t i = 0; i < total; i++)
    if (!is_known(arguments[i])) stop(report::Reason::native_call, native_name(callable));
  if (function.use == Use::kQuery || function.use == Use::kSetUnchanged) {
    if (keyword_names || (function.use == Use::kSetUnchanged && positional == 0))
      stop(report::Reason::native_call, native_name(callable));
    if (function.use == Use::kQuery) return ask(callable, arguments, positional);
    Ref now = ask(function.getter, arguments, positional - 1);
    Borrowed wanted = arguments[positional - 1];
    if (now.type() != wanted.type() || PyObject_RichCompareBool(now.get(), wanted.get(), Py_EQ) != 1)
      stop(report::Reason::native_call, native_name(callable));
    Ref given = checked(PyTuple_New(static_cast<Py_ssize_t>(positional)));
    for (size_t i = 0; i < positional; i++)
      PyTuple_SET_ITEM(given.get(), static_cast<Py_ssize_t>(i), Py_NewRef(arguments[i]));
    t.output->add_effect(callable, std::move(given), {});
    return Ref::share(Py_None);
  }
  use(function.group);
  if (function.use == Use::kSet) {
    // A subgraph (a branch of a cond) would set it on one path only; a checkpoint sets it again in the backward pass.
    if (t.functorch->subgraph_depth != 0) stop(report::Reason::torch_call, native_name(callable) + " in a subgraph");
    if (t.recorder.is_checkpointed()) stop(report::Reason::torch_call, native_name(callable) + " in a checkpoint");
    if (!t.recorder.watch_flags()) stop(report::Reason::native_call, native_name(callable));
    use(fake::kAttention | fake::kKernels);
  }
  return checked(PyObject_Vectorcall(callable.get(), arguments, positional, keyword_names.get()));
}

}  // namespace alternator::trace
