// backward() inside the traced function: the gradients of the leaves are one node, like torch.autograd.grad's; their
// accumulation is traced as ordinary operations, so that `.grad` is a field like any other.
#include "trace/higher_order/backward.h"
#include "trace/core/tracer.h"
#include "trace/higher_order/functorch.h"
#include "trace/opcodes/attribute_writes.h"
#include "trace/opcodes/attributes.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/torch/torch_calls.h"
#include "trace/torch/torch_function_methods.h"
#include "trace/torch/torch_function_modes.h"

#include "graph/record/torch_types.h"
#include "lift/lifting/symbolic_inputs.h"
#include "lift/sources/tensor_spec.h"
#include "py/lasting.h"
#include "trace/calls/natives.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/grad_layout_contract.h>

#include <array>
#include <unordered_map>
#include <unordered_set>

namespace alternator::trace {

static Ref first_gradient(Tracer& t, Borrowed leaf, Borrowed gradient, bool is_free);

namespace {

struct Functions {
  Ref grad = graph::torch_name("torch.autograd", "grad");
  Ref of_function = graph::torch_name("torch.autograd", "backward");
  Ref of_tensor = of_tensors("backward");
  Ref add = of_tensors("add_"), copy = of_tensors("copy_"), clone = of_tensors("clone"), detach = of_tensors("detach");
  Ref new_strided = of_tensors("new_empty_strided");
  Ref contiguous = graph::torch_name("torch", "contiguous_format");
  Ref allow_unused = checked(Py_BuildValue("(s)", "allow_unused"));
  Ref memory_format = checked(Py_BuildValue("(s)", "memory_format"));

  static Ref of_tensors(const char* name) {
    return checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(graph::torch_types().tensor), name));
  }
};
const Functions& functions() {
  static constinit Lasting<Functions> lasting;
  return lasting.get();
}

// The arguments of a backward pass, of the method or of the function.
struct Pass {
  Borrowed outputs, gradients, retain_graph, create_graph, inputs;
};

bool is_given(Borrowed value) { return value && value.get() != Py_None; }

// `outputs` is null if there is an unknown argument.
Pass arguments_of(bool is_method, Borrowed self, const Call& call) {
  static constexpr std::array<const char*, 5> kOfMethod = {"self", "gradient", "retain_graph", "create_graph",
                                                           "inputs"};
  static constexpr std::array<const char*, 6> kOfFunction = {"tensors",      "grad_tensors",   "retain_graph",
                                                             "create_graph", "grad_variables", "inputs"};
  const auto names = is_method ? std::vector<const char*>(kOfMethod.begin(), kOfMethod.end())
                               : std::vector<const char*>(kOfFunction.begin(), kOfFunction.end());
  std::unordered_map<std::string_view, Borrowed> given;
  size_t next = 0;
  if (self) given[names[next++]] = self;
  for (size_t i = 0; i < call.positional; i++) {
    if (next >= names.size()) return {};
    given[names[next++]] = call.arguments[i];
  }
  for (size_t i = 0; i < call.keywords(); i++) {
    const std::string_view name = PyUnicode_AsUTF8(call.keyword_name(i).get());
    const auto known = std::find(names.begin(), names.end(), name);
    if (known == names.end() || given.count(name) != 0) return {};
    given[*known] = call.keyword_value(i);
  }
  if (is_given(given["grad_variables"])) return {};
  return {given[names[0]], given[names[1]], given["retain_graph"], given["create_graph"], given["inputs"]};
}

std::vector<Borrowed> tensors_in(Borrowed value) {
  std::vector<Borrowed> tensors;
  if (graph::is_tensor(value)) tensors.push_back(value);
  if (!PyTuple_CheckExact(value.get()) && !PyList_CheckExact(value.get())) return tensors;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value.get()); i++)
    tensors.emplace_back(PySequence_Fast_GET_ITEM(value.get(), i));
  return tensors;
}

// The leaves that a backward pass from `outputs` reaches, in the order in which they are visited. `is_observed`: there
// is a hook on the path, or a tensor that retains its gradient.
std::vector<at::Tensor> leaves_of(const std::vector<Borrowed>& outputs, bool* is_observed) {
  namespace ag = torch::autograd;
  std::vector<at::Tensor> leaves;
  std::vector<ag::Node*> open;
  std::unordered_set<ag::Node*> seen;
  const auto add = [&](ag::Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (Borrowed output : outputs) add(graph::as_tensor(output).grad_fn().get());
  while (!open.empty()) {
    ag::Node* node = open.back();
    open.pop_back();
    *is_observed = *is_observed || !node->pre_hooks().empty() || !node->post_hooks().empty() ||
                   !node->tensor_pre_hooks().empty() || !node->retains_grad_hooks().empty();
    if (auto* last = dynamic_cast<ag::AccumulateGrad*>(node)) leaves.push_back(last->variable);
    for (const ag::Edge& edge : node->next_edges()) add(edge.function.get());
  }
  return leaves;
}

c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace

bool is_backward(const Tracer& /*t*/, Borrowed callable) {
  const Functions& torch = functions();
  Borrowed function = PyMethod_Check(callable.get()) ? PyMethod_GET_FUNCTION(callable.get()) : callable.get();
  return function == Borrowed(torch.of_tensor) || function == Borrowed(torch.of_function);
}

void guard_accumulation(Tracer& tracer, Borrowed leaf, const std::string& name) {
  const lift::Known* known = tracer.lifter.known(leaf);
  if (known == nullptr || known->source == nullptr) return;
  lift::TensorSpec spec = lift::describe_tensor(known->original);
  lift::keep_free_sizes(*known->source, &spec);
  spec.without_hooks = true;
  if (!spec.matches(known->original.get())) stop(report::Reason::hook, name + " to a tensor with hooks");
  lift::Guard guard{lift::GuardKind::kTensor};
  guard.tensor = std::make_shared<const lift::TensorSpec>(std::move(spec));
  tracer.tree->guard(known->source, std::move(guard));
}

// The value of a leaf's first gradient. The engine takes over the computed gradient if nothing else refers to it and it
// obeys the layout contract.
static Ref first_gradient(Tracer& t, Borrowed leaf, Borrowed gradient, bool is_free) {
  const Functions& torch = functions();
  const at::Tensor &variable = graph::as_tensor(leaf), &computed = graph::as_tensor(gradient);
  // Strides that vary may be those of a dense tensor in other calls.
  if (!variable.is_non_overlapping_and_dense()) t.backed->specialize_sizes(leaf);
  if (is_free && torch::autograd::utils::obeys_layout_contract(computed, variable)) {
    PyObject* arguments[] = {nullptr, gradient.get()};
    return call_torch(t, {torch.detach, arguments + 1, 1, {}});
  }
  if (!variable.is_non_overlapping_and_dense()) {
    PyObject* arguments[] = {nullptr, gradient.get(), torch.contiguous.get()};
    return call_torch(t, {torch.clone, arguments + 1, 1, torch.memory_format});
  }
  t.backed->specialize_sizes(leaf);
  auto numbers = [](at::IntArrayRef values) {
    Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
    for (size_t i = 0; i < values.size(); i++)
      PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), checked(PyLong_FromLongLong(values[i])).release());
    return tuple;
  };
  Ref sizes = numbers(variable.sizes()), strides = numbers(variable.strides());
  PyObject* layout[] = {nullptr, gradient.get(), sizes.get(), strides.get()};
  Ref empty = call_torch(t, {torch.new_strided, layout + 1, 3, {}});
  PyObject* operands[] = {nullptr, empty.get(), gradient.get()};
  return call_torch(t, {torch.copy, operands + 1, 2, {}});
}

Ref call_backward(Tracer& t, const Call& call, const std::string& name) {
  const Functions& torch = functions();
  PyObject* const callable = call.callable.get();
  const bool is_bound = PyMethod_Check(callable);
  Borrowed function = is_bound ? PyMethod_GET_FUNCTION(callable) : callable;
  Borrowed self = is_bound ? PyMethod_GET_SELF(callable) : nullptr;
  const Pass pass = arguments_of(function == Borrowed(torch.of_tensor), self, call);
  auto refuse = [&](bool condition, const char* why = "") {
    if (condition) stop(report::Reason::backward, name + why);
  };
  // With a graph break here, a backend compiles both the part before it and its backward pass. AOTAutograd cannot trace
  // an autograd graph that is consumed inside the same graph, so such a graph runs the recorded program, uncompiled.
  refuse(t.options.may_break && !t.recorder.captures_scalars());
  refuse(!pass.outputs);
  refuse(pass.create_graph && pass.create_graph.get() != Py_False, " with create_graph");
  refuse(is_given(pass.inputs), " with inputs");
  t.function_modes->forbid("a backward pass");
  refuse(t.functorch->transformed || t.recorder.is_silent() || t.recorder.is_checkpointed(),
         " in a region that is transformed or recomputed");
  const std::vector<Borrowed> outputs = tensors_in(pass.outputs);
  refuse(outputs.empty());
  for (Borrowed output : outputs) {
    refuse(!graph::is_tensor(output) || t.torch_functions->is_overridden(output));
    refuse(graph::as_tensor(output).is_leaf(), " of a tensor without an autograd graph");
  }
  std::unordered_map<c10::StorageImpl*, const c10::TensorImpl*> taken;
  if (is_given(pass.gradients)) {
    for (Borrowed gradient : tensors_in(pass.gradients)) {
      if (graph::is_tensor(gradient)) taken[storage_of(graph::as_tensor(gradient))] = nullptr;
    }
  }
  bool is_observed = false;
  const std::vector<at::Tensor> reached = leaves_of(outputs, &is_observed);
  refuse(is_observed, " through a tensor with hooks");
  refuse(reached.empty(), " that reaches no leaf");
  Ref leaves = checked(PyTuple_New(static_cast<Py_ssize_t>(reached.size())));
  for (size_t i = 0; i < reached.size(); i++) {
    Ref leaf = checked(THPVariable_Wrap(reached[i]));
    refuse(t.torch_functions->is_overridden(leaf), " to a tensor with a __torch_function__");
    guard_accumulation(t, leaf, name);
    PyTuple_SET_ITEM(leaves.get(), static_cast<Py_ssize_t>(i), leaf.release());
  }
  PyObject* none = Py_None;
  PyObject* given[] = {nullptr,
                       pass.outputs.get(),
                       leaves.get(),
                       pass.gradients ? pass.gradients.get() : none,
                       pass.retain_graph ? pass.retain_graph.get() : none,
                       Py_False,
                       Py_True};
  Ref gradients = t.functorch->call_recorded({torch.grad, given + 1, 5, torch.allow_unused});

  t.recorder.program().keeps_history = true;
  const at::AutoGradMode without_history(false);
  Ref field = checked(PyUnicode_InternFromString("grad"));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(leaves.get()); i++) {
    Borrowed leaf = PyTuple_GET_ITEM(leaves.get(), i), gradient = PyTuple_GET_ITEM(gradients.get(), i);
    if (gradient.get() == Py_None) continue;
    const at::Tensor& computed = graph::as_tensor(gradient);
    refuse(computed.layout() != at::kStrided, " with a gradient that is sparse");
    Ref before = get_attribute(t, leaf, field);
    if (before.get() != Py_None) {
      refuse(graph::as_tensor(before).layout() != at::kStrided || t.torch_functions->is_overridden(before),
             " to a gradient with another layout or a __torch_function__");
      PyObject* operands[] = {nullptr, before.get(), gradient.get()};
      (void)call_torch(t, {torch.add, operands + 1, 2, {}});
      continue;
    }
    const auto [other, is_free] = taken.try_emplace(storage_of(computed), computed.unsafeGetTensorImpl());
    // It shares the storage of a gradient argument, or of a view of another leaf's gradient: whether the engine takes
    // it over depends on reference counts.
    refuse(!is_free && other->second != computed.unsafeGetTensorImpl(), " with a gradient that shares memory");
    set_attribute(t, leaf, field, first_gradient(t, leaf, gradient, is_free));
  }
  return Ref::share(Py_None);
}

}  // namespace alternator::trace
