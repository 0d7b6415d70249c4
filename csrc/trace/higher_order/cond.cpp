// torch.cond: one node over two subgraphs. Both branches are traced, so neither may have side effects.
#include "trace/higher_order/cond.h"
#include "trace/calls/call_dispatch.h"
#include "trace/higher_order/functorch.h"
#include "trace/higher_order/subgraph.h"
#include "trace/opcodes/items.h"
#include "trace/symbolic/deferred_values.h"
#include "trace/torch/torch_function_modes.h"

#include "graph/export/fx_export.h"
#include "lift/lifting/write_log.h"
#include "py/lasting.h"
#include "trace/soundness/reachable.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace alternator::trace {

namespace {

constexpr const char* kCond = "torch.cond";

[[noreturn]] void refuse(const std::string& why) { refuse_subgraph(kCond, why); }

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

bool same_structure(Borrowed one, Borrowed other) {
  if (graph::is_tensor(one)) return graph::is_tensor(other);
  PyObject *a = one.get(), *b = other.get();
  if (Py_TYPE(a) != Py_TYPE(b) || PySequence_Fast_GET_SIZE(a) != PySequence_Fast_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(a); i++)
    if (!same_structure(PySequence_Fast_GET_ITEM(a, i), PySequence_Fast_GET_ITEM(b, i))) return false;
  return true;
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

Ref graph_of(graph::Program& program, const std::vector<at::Tensor>& inputs) {
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

Ref tuple_of(const std::vector<at::Tensor>& tensors) {
  Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(tensors.size())));
  for (size_t i = 0; i < tensors.size(); i++)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), checked(THPVariable_Wrap(tensors[i])).release());
  return tuple;
}

at::Tensor make_result(const at::Tensor& like, at::IntArrayRef sizes, at::IntArrayRef strides,
                       const std::vector<at::Tensor>& inputs) {
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

std::vector<at::Tensor> Arm::inputs() const {
  std::vector<at::Tensor> used;
  for (uint32_t input : program->inputs) used.push_back(program->tensors[program->declared[input].tensor].fake);
  return used;
}

Arm trace_arm(Tracer& t, const char* what, Borrowed function, Borrowed operands, bool fresh) {
  Arm branch;
  graph::Recorder::Part part(t.recorder);
  std::vector<PyObject*> arguments{nullptr};
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(operands.get()); i++)
    arguments.push_back(PySequence_Fast_GET_ITEM(operands.get(), i));
  for (size_t i = 1; fresh && i < arguments.size(); i++)
    t.recorder.declare(fake::unpack(arguments[i]), Py_None, Py_None);
  try {
    branch.result = call(t, function, arguments.data() + 1, arguments.size() - 1, {});
  } catch (const PyError&) {
    if (t.stopped) throw;
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

void Arm::check_aliases(const char* what) const {
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

// (pred, true_fn, false_fn, operands); count 0: the arguments do not match this signature.
Ref call_cond(Tracer& t, PyObject* const* arguments, size_t count) {
  if (count == 0) refuse("its arguments do not match its signature");
  t.function_modes->forbid("torch.cond");
  Borrowed pred = arguments[0], operands = arguments[3];
  // No graph break is possible until it has finished.
  t.functorch->subgraph_depth++, t.functorch->note();
  escape_all(t, arguments, count);
  if (!PyTuple_CheckExact(operands.get()) && !PyList_CheckExact(operands.get()))
    refuse("operands are not a tuple or list");
  if (PyBool_Check(pred.get()) || PyLong_CheckExact(pred.get()) || PyFloat_CheckExact(pred.get())) {
    const bool holds = truth(t, pred).value();
    t.functorch->subgraph_depth--, t.functorch->note();
    std::vector<PyObject*> given{nullptr};
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(operands.get()); i++)
      given.push_back(PySequence_Fast_GET_ITEM(operands.get(), i));
    try {
      return call(t, holds ? arguments[1] : arguments[2], given.data() + 1, given.size() - 1, {});
    } catch (const PyError&) {
      if (t.stopped) throw;
      PyErr_Clear();
      // The traceback would lack the frame of torch.cond.
      stop(report::Reason::raises, "a branch of torch.cond raises an exception");
    }
  }
  if (!graph::is_tensor(pred) || !fake::is_fake(fake::unpack(pred.get())) ||
      fake::unpack(pred.get()).scalar_type() != at::kBool || fake::unpack(pred.get()).sym_numel() != 1)
    refuse("the predicate is not a bool tensor with one element");
  if (t.recorder.records_numbers()) refuse("after an unbacked symbol");
  if (t.recorder.is_silent() || fake::TransformState::now() != t.functorch->transforms_before)
    refuse("inside a transform");
  if (t.lifter.write_log->has_writes()) refuse("after a write to a pre-existing object");
  const size_t deferred_before = t.deferred->points.size();

  Reachable reachable(t.lifter);
  for (size_t i = 1; i < count; i++)
    if (!reachable.add(arguments[i])) refuse("a branch can reach an object whose state cannot be inspected");
  Arm branches[2];
  for (int i = 0; i < 2; i++) {
    branches[i] = trace_arm(t, kCond, arguments[1 + i], operands);
    if (t.lifter.write_log->has_writes() || t.deferred->points.size() != deferred_before || !reachable.unchanged())
      refuse("a branch mutates an object");
  }
  if (!same_structure(branches[0].result, branches[1].result)) refuse("the branches return different structures");

  std::vector<at::Tensor> inputs;
  for (const Arm& branch : branches) {
    for (const at::Tensor& tensor : branch.inputs())
      if (std::none_of(inputs.begin(), inputs.end(), [&](const at::Tensor& one) { return one.is_same(tensor); }))
        inputs.push_back(tensor);
  }
  Ref given = tuple_of(inputs), results;
  {
    const Paused paused(t);
    const graph::Recorder::Silent silent(t.recorder);
    std::vector<at::Tensor> made;
    for (size_t i = 0; i < branches[0].leaves.size(); i++) {
      const at::Tensor &one = fake::unpack(branches[0].leaves[i].get()),
                       &other = fake::unpack(branches[1].leaves[i].get());
      if (!has_same_metadata(one, other)) refuse("the branches return tensors with different metadata");
      made.push_back(make_result(one, one.sizes(), one.strides(), inputs));
    }
    results = tuple_of(made);
    Ref graphs[] = {graph_of(*branches[0].program, inputs), graph_of(*branches[1].program, inputs)};
    PyObject* noted[] = {pred.get(), graphs[0].get(), graphs[1].get(), given.get()};
    static constinit Lasting<Ref> condition;
    const Ref& callee = condition.get([] { return graph::torch_name("torch._higher_order_ops.cond", "cond_op"); });
    t.recorder.note_call(callee, noted, 4, Ref(results), branches[0].effects | branches[1].effects);
  }
  t.functorch->subgraph_depth--, t.functorch->note();
  Py_ssize_t next = 0;
  return unflatten_result(branches[0].result, results, &next);
}

}  // namespace alternator::trace
