#include "trace/higher_order/subgraph.h"
#include "trace/calls/call_dispatch.h"
#include "trace/higher_order/functorch.h"
#include "trace/symbolic/deferred_values.h"
#include "trace/torch/torch_function_modes.h"

#include "graph/export/fx_export.h"
#include "lift/lifting/write_log.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace alternator::trace {

namespace {

// Flattens a result into its tensors, in order.
void flatten(const char* what, Borrowed value, std::vector<Ref>* leaves) {
  PyObject* v = value.get();
  if (graph::is_tensor(value)) {
    leaves->push_back(Ref::share(value));
  } else if (PyTuple_CheckExact(v) || PyList_CheckExact(v)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); i++) flatten(what, PySequence_Fast_GET_ITEM(v, i), leaves);
  } else {
    refuse_subgraph(what, std::string("a branch or body returns a ") + Py_TYPE(v)->tp_name);
  }
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace

void refuse_subgraph(const char* what, const std::string& why) {
  stop(report::Reason::torch_call, what + (": " + why));
}

Ref unflatten_result(Borrowed value, Borrowed leaves, Py_ssize_t* next) {
  if (graph::is_tensor(value)) return Ref::share(PyTuple_GET_ITEM(leaves.get(), (*next)++));
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(value.get());
  Ref list = checked(PyList_New(size));
  for (Py_ssize_t i = 0; i < size; i++) {
    PyList_SET_ITEM(list.get(), i, unflatten_result(PySequence_Fast_GET_ITEM(value.get(), i), leaves, next).release());
  }
  return PyTuple_Check(value.get()) ? checked(PyList_AsTuple(list.get())) : std::move(list);
}

bool has_same_metadata(const at::Tensor& one, const at::Tensor& other) {
  return one.sizes() == other.sizes() && one.strides() == other.strides() && one.dtype() == other.dtype() &&
         one.device() == other.device() && one.is_conj() == other.is_conj() && one.is_neg() == other.is_neg();
}

Ref graph_of(graph::Program& program, const Tensors& inputs) {
  program.inputs.clear();
  for (const at::Tensor& input : inputs) {
    auto is_it = [&](const graph::Input& one) { return program.tensors[one.tensor].fake.is_same(input); };
    auto found = std::find_if(program.declared.begin(), program.declared.end(), is_it);
    const auto position = static_cast<uint32_t>(found - program.declared.begin());
    if (found == program.declared.end()) {
      const auto tensor = static_cast<uint32_t>(program.tensors.size());
      program.tensors.push_back({input, graph::Origin::Input, position});
      program.declared.push_back({tensor, Ref::share(Py_None), Ref::share(Py_None)});
    }
    program.inputs.push_back(position);
  }
  return graph::export_fx(program, {});
}

Ref tuple_of(const Tensors& tensors) {
  Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(tensors.size())));
  for (size_t i = 0; i < tensors.size(); i++)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), checked(THPVariable_Wrap(tensors[i])).release());
  return tuple;
}

at::Tensor make_result(const at::Tensor& like, at::IntArrayRef sizes, at::IntArrayRef strides, const Tensors& inputs) {
  at::Tensor made = at::empty_strided(sizes, strides, like.options().requires_grad(false));
  if (!c10::GradMode::is_enabled() || !(made.is_floating_point() || made.is_complex())) return made;
  // Derived from an input that requires a gradient, as the operator's autograd node would be.
  for (const at::Tensor& input : inputs) {
    if (!input.requires_grad()) continue;
    made.copy_(input.sum().to(like.scalar_type()).to(like.device()).expand(sizes));
    break;
  }
  return made;
}

Tensors Subgraph::inputs() const {
  Tensors used;
  for (uint32_t input : program->inputs) used.push_back(program->tensors[program->declared[input].tensor].fake);
  return used;
}

Subgraph trace_subgraph(Tracer& t, const char* what, Borrowed function, Borrowed operands, bool fresh) {
  Subgraph branch;
  graph::Recorder::Part part(t.recorder);
  std::vector<PyObject*> arguments{nullptr};
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(operands.get()); i++)
    arguments.push_back(PySequence_Fast_GET_ITEM(operands.get(), i));
  for (size_t i = 1; fresh && i < arguments.size(); i++)
    t.recorder.declare(fake::unpack(arguments[i]), Py_None, Py_None);
  try {
    branch.result = call(t, {function, arguments.data() + 1, arguments.size() - 1, {}});
  } catch (const PyError&) {
    if (t.result.stopped) throw;
    PyErr_Clear();
    refuse_subgraph(what, "a branch or body raises an exception");
  }
  t.lifter.escape(branch.result);
  flatten(what, branch.result, &branch.leaves);
  Ref list = checked(PyList_New(0));
  for (const Ref& leaf : branch.leaves) check_status(PyList_Append(list.get(), leaf.get()));
  branch.program = part.finish(list);
  for (const graph::Node& node : branch.program->nodes)
    if (node.live) branch.effects |= node.effects;
  if ((branch.effects & ~graph::kRandom) != 0)
    refuse_subgraph(what, "a branch or body writes to a tensor or has another side effect");
  if (!fresh) branch.check_aliases(what);
  return branch;
}

void Subgraph::check_aliases(const char* what) const {
  std::vector<const c10::StorageImpl*> storages;
  for (const at::Tensor& input : inputs()) storages.push_back(storage_of(input));
  for (const Ref& leaf : leaves) {
    const at::Tensor& tensor = fake::unpack(leaf.get());
    if (!fake::is_fake(tensor) || !tensor.is_non_overlapping_and_dense())
      refuse_subgraph(what, "a branch or body returns a tensor that is not fake or not dense");
    if (std::find(storages.begin(), storages.end(), storage_of(tensor)) != storages.end())
      refuse_subgraph(what, "a branch or body returns a view of an input, or of another of its results");
    storages.push_back(storage_of(tensor));
  }
}

SubgraphScope::SubgraphScope(Tracer& tracer) : t(tracer) { t.functorch->subgraph_depth++, t.functorch->note(); }
void SubgraphScope::leave() { t.functorch->subgraph_depth--, t.functorch->note(); }

// Makes a graph with one output return the tensor itself, not a tuple.
void unwrap_single_output(Borrowed module) {
  Ref graph = checked(PyObject_GetAttrString(module.get(), "graph"));
  Ref output = checked(PyObject_CallMethod(graph.get(), "output_node", nullptr));
  Ref arguments = checked(PyObject_GetAttrString(output.get(), "args"));
  PyObject* results = PyTuple_GET_ITEM(arguments.get(), 0);
  Ref alone = checked(PyTuple_Pack(1, PyTuple_GET_ITEM(results, 0)));
  check_status(PyObject_SetAttrString(output.get(), "args", alone.get()));
  Ref done = checked(PyObject_CallMethod(module.get(), "recompile", nullptr));
}

Tensors concat(Tensors first, const Tensors& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * std::max<int64_t>(sizes[i + 1], 1);
  return strides;
}

PlaceholderCall::PlaceholderCall(Tracer& tracer, const char* what)
    : tracer_(tracer), what_(what), reachable_(tracer.lifter) {
  tracer.function_modes->forbid(what);
  if (tracer.recorder.records_numbers()) refuse("after an unbacked symbol");
  if (tracer.recorder.is_silent() || fake::TransformState::now() != tracer.functorch->transforms_before)
    refuse("inside a transform");
  if (tracer.lifter.write_log->has_writes()) refuse("after a write to a pre-existing object");
}

void PlaceholderCall::reach(PyObject* const* arguments, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!reachable_.add(arguments[i])) refuse("its function can reach an object whose state cannot be inspected");
}

Subgraph PlaceholderCall::trace(Borrowed function, const Tensors& placeholders, bool may_alias) {
  const size_t deferred_before = tracer_.deferred->points.size();
  Ref operands = tuple_of(placeholders);
  Subgraph subgraph = trace_subgraph(tracer_, what_, function, operands, /*fresh=*/true);
  if (!may_alias) subgraph.check_aliases(what_);
  if (subgraph.effects != graph::kPure) refuse("its function draws random numbers");
  if (tracer_.lifter.write_log->has_writes() || tracer_.deferred->points.size() != deferred_before ||
      !reachable_.unchanged())
    refuse("its function mutates an object");
  return subgraph;
}

Tensors PlaceholderCall::captured_by(std::initializer_list<const Subgraph*> subgraphs, const Tensors& placeholders) {
  Tensors found;
  for (const Subgraph* subgraph : subgraphs)
    for (const at::Tensor& one : subgraph->inputs())
      if (!holds(placeholders, one) && !holds(found, one)) found.push_back(one);
  return found;
}

bool PlaceholderCall::holds(const Tensors& tensors, const at::Tensor& wanted) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& one) { return one.is_same(wanted); });
}

}  // namespace alternator::trace
