// Tensor hooks: register_hook, register_post_accumulate_grad_hook, retain_grad. They are attached to a tensor's
// autograd graph, which a fake has not: the residual program registers them on the tensors that the graph has computed.
#include "trace/torch/tensor_hooks.h"
#include "trace/opcodes/attributes.h"
#include "trace/stdlib/output_effects.h"
#include "trace/symbolic/deferred_values.h"
#include "trace/torch/torch_function_modes.h"

#include "graph/record/torch_types.h"
#include "py/lasting.h"
#include "trace/calls/natives.h"
#include "trace/core/refuse_value.h"
#include "trace/core/tracer.h"

namespace alternator::trace {

// What register_hook returns in a trace: an object that may be stored and dropped. Each run makes the real handle; any
// other use of it stops the trace, which then breaks where the hook is registered.
static PyTypeObject handle_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

bool is_hook_handle(Borrowed object) { return Py_IS_TYPE(object.get(), &handle_type); }

static PyObject* refuse_handle() { return refuse(report::Reason::hook, "a handle", "its handle is used"); }

int init_hooks() {
  static PyNumberMethods numbers;
  numbers.nb_bool = [](PyObject*) -> int { return refuse_handle(), -1; };
  handle_type.tp_name = "torch.utils.hooks.RemovableHandle";
  handle_type.tp_basicsize = sizeof(PyObject);
  handle_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  handle_type.tp_as_number = &numbers;
  handle_type.tp_hash = [](PyObject*) -> Py_hash_t { return refuse_handle(), -1; };
  handle_type.tp_richcompare = [](PyObject*, PyObject*, int) { return refuse_handle(); };
  handle_type.tp_getattro = [](PyObject*, PyObject*) { return refuse_handle(); };
  handle_type.tp_repr = [](PyObject*) { return refuse_handle(); };
  return PyType_Ready(&handle_type);
}

namespace {

struct HookMethods {
  Ref before = of_tensors("register_hook");
  Ref after = of_tensors("register_post_accumulate_grad_hook");
  Ref retain = of_tensors("retain_grad");
  Ref handle = graph::torch_name("torch.utils.hooks", "RemovableHandle");

  static Ref of_tensors(const char* name) {
    return checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(graph::torch_types().tensor), name));
  }
};
const HookMethods& hook_methods() {
  static constinit Lasting<HookMethods> methods;
  return methods.get();
}

bool is_method(Borrowed callable, const Ref& method) {
  if (callable == Borrowed(method)) return true;
  return PyCFunction_Check(callable.get()) && Py_IS_TYPE(method.get(), &PyMethodDescr_Type) &&
         callable.as<PyCFunctionObject>()->m_ml == method.as<PyMethodDescrObject>()->d_method;
}

}  // namespace

void load_hooks() { hook_methods(); }

// Handles take their ids from a class-level counter, which the eager call increments too.
bool TensorHooks::is_hook_handle_class(PyTypeObject* type) const {
  return reinterpret_cast<PyObject*>(type) == hook_methods().handle.get();
}

Ref TensorHooks::call(const Call& call) {
  const HookMethods& methods = hook_methods();
  const bool retains = is_method(call.callable, methods.retain), after = is_method(call.callable, methods.after);
  if (!retains && !after && !is_method(call.callable, methods.before)) return {};
  const auto [tensor, rest] = split_self(call);
  const std::string name = native_name(call.callable);
  if (!tensor || !graph::is_tensor(tensor) || rest.positional != (retains ? 0 : 1)) stop(report::Reason::hook, name);
  t.function_modes->forbid("a hook on a tensor");
  if (graph::has_own_torch_function(tensor.type()))  // it would run where the residual program registers the hook
    stop(report::Reason::hook, name + " of a tensor with a __torch_function__");
  // What is recomputed in the backward pass would register the hook again.
  if (t.is_transformed() || t.recorder.is_silent() || t.recorder.is_checkpointed())
    stop(report::Reason::hook, name + " in a region that is transformed or recomputed");
  const at::Tensor& fake = graph::as_tensor(tensor);
  const bool leaf = fake.is_leaf(), preexisting = t.lifter.known(tensor) != nullptr;
  if (!fake.requires_grad() || (after && !leaf) || (retains && preexisting)) stop(report::Reason::hook, name);
  if (!retains &&
      is_written_by_program(t, methods.handle.as<PyTypeObject>(), checked(PyUnicode_InternFromString("next_id"))))
    stop(report::Reason::hook, name + " next to a hook of a module");
  t.autograd_queries++;
  // If the tensor is mutated later, its autograd graph differs by the time the hook is registered.
  t.output->note_shown(tensor);
  if (!preexisting || !leaf) t.recorder.program().keeps_history = true;
  if (retains) {
    const Paused paused(t);
    const graph::Recorder::Silent silent(t.recorder);
    (void)checked(PyObject_CallOneArg(methods.retain.get(), tensor.get()));
    t.output->add_effect(methods.retain, checked(PyTuple_Pack(1, tensor.get())), {});
    return Ref::share(Py_None);
  }
  if (t.deferred->points.empty()) {
    t.deferred->points = t.points_here();
    t.deferred->event = t.event_here(report::Reason::hook, "its handle is used");
  }
  registered = true;
  t.lifter.escape(rest.arguments[0]);
  t.output->add_effect(after ? methods.after : methods.before,
                       checked(PyTuple_Pack(2, tensor.get(), rest.arguments[0])), {});
  return checked(handle_type.tp_alloc(&handle_type, 0));
}

}  // namespace alternator::trace
