// MyFunction.apply of a torch.autograd.Function.
#include "trace/higher_order/autograd_functions.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"
#include "trace/higher_order/functorch.h"
#include "trace/opcodes/attributes.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/torch/torch_calls.h"
#include "trace/torch/torch_function_modes.h"

#include "lift/lifting/write_log.h"
#include "py/import.h"
#include "trace/calls/handlers.h"
#include "trace/calls/natives.h"
#include "trace/higher_order/backward_reads.h"

#include <c10/core/GradMode.h>

#include <algorithm>

namespace alternator::trace {

namespace {

// Values that forward() cannot mutate and that contain nothing mutable but tensors.
bool is_tensor_or_plain(Borrowed value) {
  if (PyTuple_CheckExact(value.get())) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value.get()); i++) {
      if (!is_tensor_or_plain(PyTuple_GET_ITEM(value.get(), i))) return false;
    }
    return true;
  }
  return graph::is_tensor(value) || lift::is_plain(value.get()) || PyType_Check(value.get());
}

const c10::TensorImpl* impl_of(Borrowed tensor) { return fake::unpack(tensor.get()).unsafeGetTensorImpl(); }

// Whether a tensor is among these values.
bool is_among(Borrowed tensor, Borrowed values) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values.get()); i++) {
    Borrowed value = PyTuple_GET_ITEM(values.get(), i);
    if (graph::is_tensor(value) && impl_of(value) == impl_of(tensor)) return true;
  }
  return false;
}

}  // namespace

// One run of forward() and setup_context(), with its own ctx.
struct Forward {
  Ref inputs;   // a tuple
  Ref context;  // ctx
  Ref output;
};

Forward AutogradFunctions::run_forward(Borrowed cls, PyObject* const* arguments, size_t count) {
  Forward run;
  auto attribute = [&](const char* text) {
    return get_from_type(t, cls.as<PyTypeObject>(), checked(PyUnicode_InternFromString(text)));
  };
  Ref context_class = checked(PyObject_GetAttrString(cls.get(), "_backward_cls"));
  run.context = checked(PyObject_CallNoArgs(context_class.get()));
  run.inputs = checked(PyTuple_New(static_cast<Py_ssize_t>(count)));
  Ref wanted = checked(PyTuple_New(static_cast<Py_ssize_t>(count)));
  std::vector<PyObject*> with_context{nullptr, run.context.get()};
  for (size_t i = 0; i < count; i++) {
    const bool one = graph::is_tensor(arguments[i]) && fake::unpack(arguments[i]).requires_grad();
    PyTuple_SET_ITEM(wanted.get(), static_cast<Py_ssize_t>(i), Py_NewRef(one ? Py_True : Py_False));
    PyTuple_SET_ITEM(run.inputs.get(), static_cast<Py_ssize_t>(i), Py_NewRef(arguments[i]));
    with_context.push_back(arguments[i]);
  }
  check_status(PyObject_SetAttrString(run.context.get(), "needs_input_grad", wanted.get()));
  const c10::AutoGradMode without_gradients(false);
  Ref setup = attribute("setup_context");
  const bool one_step = setup.get() == Natives::table().setup_context;
  run.output = one_step ? call(t, {attribute("forward"), with_context.data() + 1, count + 1, {}})
                        : call(t, {attribute("forward"), with_context.data() + 2, count, {}});
  if (!one_step) {
    PyObject* both[] = {nullptr, run.context.get(), run.inputs.get(), run.output.get()};
    (void)call(t, {setup, both + 1, 3, {}});
  }
  return run;
}

bool AutogradFunctions::wants_gradient(PyObject* const* arguments, size_t count) {
  for (size_t i = 0; c10::GradMode::is_enabled() && i < count; i++) {
    if (graph::is_tensor(arguments[i]) && fake::unpack(arguments[i]).requires_grad()) return true;
  }
  return false;
}

// What apply() returns for a tensor that forward() returned, where no gradient is needed: an input is returned as
// another tensor over the same storage.
Ref AutogradFunctions::wrap_output(Borrowed output, const Forward& run, const std::string& name) {
  if (!graph::is_tensor(output)) return Ref::share(output);
  const bool is_input = is_among(output, run.inputs);
  const bool requires_grad = fake::unpack(output.get()).requires_grad();
  if (!is_input && requires_grad)
    stop(report::Reason::native_call, name + " that returns a tensor that requires a gradient");
  if (!is_input) return Ref::share(output);
  PyObject* arguments[] = {nullptr, output.get(), output.get()};
  Ref method = checked(PyObject_GetAttrString(THPVariableClass, requires_grad ? "detach" : "view_as"));
  const c10::AutoGradMode without_gradients(false);
  return call_torch(t, {method, arguments + 1, requires_grad ? 1U : 2U, {}});
}

// Where no gradient is needed, apply() is inlined as its forward().
Ref AutogradFunctions::apply_forward(Borrowed cls, PyObject* const* arguments, size_t count, const std::string& name) {
  const Forward run = run_forward(cls, arguments, count);
  Ref dirty = checked(PyObject_GetAttrString(run.context.get(), "dirty_tensors"));
  if (dirty.get() != Py_None) stop(report::Reason::native_call, name + " that writes to its input");
  if (!PyTuple_Check(run.output.get())) return wrap_output(run.output, run, name);
  Ref outputs = checked(PyTuple_New(PyTuple_GET_SIZE(run.output.get())));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(outputs.get()); i++) {
    PyTuple_SET_ITEM(outputs.get(), i, wrap_output(PyTuple_GET_ITEM(run.output.get(), i), run, name).release());
  }
  return outputs;
}

// Otherwise apply() is one node: at run time its forward() runs eagerly, and its backward() in the backward pass. The
// tracer first runs it without recording, so that what forward() (or the vmap rule that replaces it) reads is guarded
// and what cannot be traced is a break. Its writes would happen twice, so it must have none; nor may there be earlier
// writes, which the node would see too late. `rehearse` returns ctx, or null.
template <typename Rehearse>
Ref AutogradFunctions::apply_whole(Borrowed cls, PyObject* const* arguments, size_t count, const std::string& name,
                                   const Rehearse& rehearse) {
  if (t.function_modes->is_active()) stop(report::Reason::native_call, name + " under a user's torch-function mode");
  for (size_t i = 0; i < count; i++) {
    t.backed->make_plain(arguments[i]);
    if (!is_tensor_or_plain(arguments[i]))
      stop(report::Reason::native_call, name + " on arguments that are neither tensors nor plain values");
  }
  if (t.lifter.write_log->has_writes())
    stop(report::Reason::native_call, name + " after a write to a pre-existing object");
  Ref context;
  {
    const graph::Recorder::Silent silent(t.recorder);
    context = rehearse();
  }
  if (t.lifter.write_log->has_writes())
    stop(report::Reason::native_call, name + " that writes to a pre-existing object");
  applied = true;
  // AOTAutograd would run its backward() only once, at compile time.
  if (!guard_backward(t, cls, context, {arguments, count})) t.recorder.program().keeps_history = true;
  // torch's Python method, which an exported graph can name. Not the class's, which may be an override that was already
  // inlined.
  return call_torch(t, {checked(PyMethod_New(Natives::table().function_apply, cls.get())), arguments, count, {}});
}

bool register_autograd_functions(Handlers& handlers) {
  // A class method of the native base class: `self` is the class.
  auto* base = reinterpret_cast<PyTypeObject*>(Natives::table().function_base);
  handlers.add_methods(base, "apply", [](Tracer& t, const Call& call) {
    return PyCFunction_Check(call.callable.get()) ? t.autograd_functions->apply(call) : Ref();
  });
  handlers.add(Natives::table().transformed_apply, [](Tracer& t, const Call& call) {
    return call.positional > 0 ? t.autograd_functions->apply_transformed(call) : Ref();
  });
  return true;
}

Ref AutogradFunctions::apply(const Call& call) {
  const auto [callable, arguments, positional, keyword_names] = call;
  Borrowed cls = PyCFunction_GET_SELF(callable.get());
  const std::string name = native_name(callable);
  if (t.functorch->transformed) stop(report::Reason::native_call, name + " inside a transform");
  // torch finds the autograd node that it creates by its name.
  if (cls.get() == Natives::table().backward_hook) stop(report::Reason::hook, "a full backward hook of a module");
  if (keyword_names) stop(report::Reason::native_call, name + " with keywords");
  if (t.lifter.made_here(cls)) stop(report::Reason::native_call, name + " of a class that the traced function creates");
  if (!wants_gradient(arguments, positional)) return apply_forward(cls, arguments, positional, name);
  return apply_whole(cls, arguments, positional, name, [&] { return run_forward(cls, arguments, positional).context; });
}

// Whether all active functorch transforms are vmap.
static bool is_only_batched() {
  Ref functorch = import_module("torch._C._functorch");
  Ref stack = checked(PyObject_CallMethod(functorch.get(), "get_interpreter_stack", nullptr));
  Ref vmap = checked(PyObject_GetAttrString(functorch.get(), "TransformType"));
  vmap = checked(PyObject_GetAttrString(vmap.get(), "Vmap"));
  if (!PyList_Check(stack.get())) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(stack.get()); i++) {
    Ref key = checked(PyObject_CallMethod(PyList_GET_ITEM(stack.get(), i), "key", nullptr));
    const int same = PyObject_RichCompareBool(key.get(), vmap.get(), Py_EQ);
    if (same < 0) throw PyError();
    if (same == 0) return false;
  }
  return true;
}

// A batched tensor does not report whether the tensor below it requires a gradient.
static bool may_want_gradient(Borrowed value) {
  PyObject* v = value.get();
  if (!c10::GradMode::is_enabled()) return false;
  if (graph::is_tensor(v)) {
    const at::ScalarType dtype = fake::unpack(v).scalar_type();
    return at::isFloatingType(dtype) || at::isComplexType(dtype);
  }
  for (Py_ssize_t i = 0; (PyTuple_CheckExact(v) || PyList_CheckExact(v)) && i < PySequence_Fast_GET_SIZE(v); i++) {
    if (may_want_gradient(PySequence_Fast_GET_ITEM(v, i))) return true;
  }
  return false;
}

// Leaves the innermost vmap level while the class's vmap rule runs.
class WithoutInnermost {
 public:
  WithoutInnermost()
      : functorch_(import_module("torch._C._functorch")),
        layer_(checked(PyObject_CallMethod(functorch_.get(), "pop_dynamic_layer_stack", nullptr))) {}
  ~WithoutInnermost() {
    const SavedError pending_error;
    (void)Ref::steal(PyObject_CallMethod(functorch_.get(), "push_dynamic_layer_stack", "O", layer_.get()));
  }
  WithoutInnermost(const WithoutInnermost&) = delete;
  WithoutInnermost& operator=(const WithoutInnermost&) = delete;

 private:
  Ref functorch_, layer_;
};

// Runs the class's vmap rule on the operands that torch passes to it: custom_function_call_vmap_helper().
void AutogradFunctions::run_vmap_rule(Borrowed cls, PyObject* const* arguments, size_t count, const std::string& name) {
  Ref functorch = import_module("torch._C._functorch");
  Ref interpreter, level, info;
  {
    const Paused paused(t);
    Ref current = graph::torch_name("torch._functorch.pyfunctorch", "retrieve_current_functorch_interpreter");
    interpreter = checked(PyObject_CallNoArgs(current.get()));
    level = checked(PyObject_CallMethod(interpreter.get(), "level", nullptr));
    Ref size = checked(PyObject_CallMethod(interpreter.get(), "batch_size", nullptr));
    Ref randomness = checked(PyObject_CallMethod(interpreter.get(), "randomness", nullptr));
    info =
        checked(PyObject_CallFunctionObjArgs(graph::torch_name("torch._functorch.autograd_function", "VmapInfo").get(),
                                             size.get(), randomness.get(), nullptr));
  }
  const auto length = static_cast<Py_ssize_t>(count);
  Ref batched = checked(PyTuple_New(length));
  std::vector<Ref> operands;
  bool any = false;
  for (Py_ssize_t i = 0; i < length; i++) {
    Borrowed argument = arguments[i];
    if (PyTuple_Check(argument.get())) stop(report::Reason::native_call, name + " on a tuple");
    if (!graph::is_tensor(argument)) {
      operands.push_back(Ref::share(argument));
      PyTuple_SET_ITEM(batched.get(), i, Py_NewRef(Py_None));
      continue;
    }
    Ref both = checked(PyObject_CallMethod(functorch.get(), "_unwrap_batched", "OO", argument.get(), level.get()));
    operands.push_back(Ref::share(PyTuple_GET_ITEM(both.get(), 0)));
    PyTuple_SET_ITEM(batched.get(), i, Py_NewRef(PyTuple_GET_ITEM(both.get(), 1)));
    any = any || PyTuple_GET_ITEM(both.get(), 1) != Py_None;
  }
  // torch skips this level then.
  if (!any) stop(report::Reason::native_call, name + " without a batched argument");
  std::vector<PyObject*> given{nullptr, info.get(), batched.get()};
  for (const Ref& operand : operands) given.push_back(operand.get());
  Ref rule = get_from_type(t, cls.as<PyTypeObject>(), checked(PyUnicode_InternFromString("vmap")));
  const WithoutInnermost without_level;
  (void)call(t, {rule, given.data() + 1, given.size() - 1, {}});
}

// Under functorch transforms torch calls the class's vmap rule. A generated rule follows from its forward(). Under grad
// and jvp, torch calls its backward() and jvp() while the program is traced.
Ref AutogradFunctions::apply_transformed(const Call& call) {
  const auto [callable, arguments, positional, keyword_names] = call;
  Borrowed cls = arguments[0];
  const std::string name = "an autograd.Function inside a transform";
  if (lift::Known* known = t.lifter.known(callable))
    t.tree->guard(known->source, {lift::GuardKind::kIs, Ref::share(callable)});
  if (keyword_names) stop(report::Reason::native_call, name + " with keywords");
  if (!PyType_Check(cls.get()) || t.lifter.made_here(cls))
    stop(report::Reason::native_call, name + " of a class that the traced function creates");
  if (!is_only_batched()) stop(report::Reason::native_call, name + " that differentiates");
  PyObject* const* given = arguments + 1;
  const size_t count = positional - 1;
  Ref generated = get_from_type(t, cls.as<PyTypeObject>(), checked(PyUnicode_InternFromString("generate_vmap_rule")));
  if (generated.get() != Py_True)
    return apply_whole(cls, given, count, name, [&] {
      run_vmap_rule(cls, given, count, name);
      return Ref();
    });
  if (!std::any_of(given, given + count, may_want_gradient)) return apply_forward(cls, given, count, name);
  return apply_whole(cls, given, count, name, [&] { return run_forward(cls, given, count).context; });
}

}  // namespace alternator::trace
