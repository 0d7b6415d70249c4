// torch.cond: one node over two graphs. Both arms are traced, so neither may do anything but compute.
#include "trace/higher_order/subgraph.h"

#include "graph/export/fx_export.h"
#include "py/lasting.h"
#include "trace/soundness/reachable.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace alternator::trace {

namespace {

constexpr const char* kCond = "torch.cond";

[[noreturn]] void refuse(const std::string& why) { refuse_part(kCond, why); }

// The tensors of a result, in order.
void flatten(const char* what, Borrowed value, std::vector<Ref>* leaves) {
  PyObject* v = value.get();
  if (graph::is_tensor(value)) {
    leaves->push_back(Ref::share(value));
  } else if (PyTuple_CheckExact(v) || PyList_CheckExact(v)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); i++) flatten(what, PySequence_Fast_GET_ITEM(v, i), leaves);
  } else {
    refuse_part(what, std::string("a part gives a ") + Py_TYPE(v)->tp_name);
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

void refuse_part(const char* what, const std::string& why) { stop(report::Reason::torch_call, what + (": " + why)); }

Ref unflatten_part(Borrowed value, Borrowed leaves, Py_ssize_t* next) {
  if (graph::is_tensor(value)) return Ref::share(PyTuple_GET_ITEM(leaves.get(), (*next)++));
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(value.get());
  Ref list = checked(PyList_New(size));
  for (Py_ssize_t i = 0; i < size; i++) {
    PyList_SET_ITEM(list.get(), i, unflatten_part(PySequence_Fast_GET_ITEM(value.get(), i), leaves, next).release());
  }
  return PyTuple_Check(value.get()) ? checked(PyList_AsTuple(list.get())) : std::move(list);
}

bool looks_like(const at::Tensor& one, const at::Tensor& other) {
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

at::Tensor made_from(const at::Tensor& like, at::IntArrayRef sizes, at::IntArrayRef strides,
                     const std::vector<at::Tensor>& inputs) {
  at::Tensor made = at::empty_strided(sizes, strides, like.options().requires_grad(false));
  if (!c10::GradMode::is_enabled() || !(made.is_floating_point() || made.is_complex())) return made;
  // Of whatever is learned: as the operator's own history says.
  for (const at::Tensor& input : inputs) {
    if (!input.requires_grad()) continue;
    made.copy_(input.sum().to(like.scalar_type()).to(like.device()).expand(sizes));
    break;
  }
  return made;
}

std::vector<at::Tensor> Tracer::Arm::inputs() const {
  std::vector<at::Tensor> used;
  for (uint32_t input : program->inputs) used.push_back(program->tensors[program->declared[input].tensor].fake);
  return used;
}

Tracer::Arm Tracer::trace_arm(const char* what, Borrowed function, Borrowed operands, bool fresh) {
  Arm arm;
  graph::Recorder::Part part(recorder);
  std::vector<PyObject*> arguments{nullptr};
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(operands.get()); i++)
    arguments.push_back(PySequence_Fast_GET_ITEM(operands.get(), i));
  for (size_t i = 1; fresh && i < arguments.size(); i++) recorder.declare(fake::unpack(arguments[i]), Py_None, Py_None);
  try {
    arm.result = call(function, arguments.data() + 1, arguments.size() - 1, {});
  } catch (const PyError&) {
    if (stopped) throw;
    PyErr_Clear();
    refuse_part(what, "a part raises an exception");
  }
  lifter.escape(arm.result);
  flatten(what, arm.result, &arm.leaves);
  Ref list = checked(PyList_New(0));
  for (const Ref& leaf : arm.leaves) check_status(PyList_Append(list.get(), leaf.get()));
  arm.program = part.finish(list);
  for (const graph::Node& node : arm.program->nodes)
    if (node.live) arm.effects |= node.effects;
  if ((arm.effects & ~graph::kRandom) != 0)
    refuse_part(what, "a part writes to a tensor, or does something that is no computation");
  if (!fresh) arm.check_aliases(what);
  return arm;
}

void Tracer::Arm::check_aliases(const char* what) const {
  std::vector<const c10::StorageImpl*> storages;
  for (const at::Tensor& input : inputs()) storages.push_back(storage_of(input));
  for (const Ref& leaf : leaves) {
    const at::Tensor& tensor = fake::unpack(leaf.get());
    if (!fake::is_fake(tensor) || !tensor.is_non_overlapping_and_dense())
      refuse_part(what, "a part gives a tensor of some other kind");
    if (std::find(storages.begin(), storages.end(), storage_of(tensor)) != storages.end())
      refuse_part(what, "a part gives a view of what it is given, or of another of its results");
    storages.push_back(storage_of(tensor));
  }
}

// (pred, true_fn, false_fn, operands); 0 of them: they are not that.
Ref Tracer::call_cond(PyObject* const* arguments, size_t count) {
  if (count == 0) refuse("its arguments do not fit");
  forbid_under_modes("torch.cond");
  Borrowed pred = arguments[0], operands = arguments[3];
  // Until it is done, nothing is cut.
  arms_++, note_transforms();
  escape_all(arguments, count);
  if (!PyTuple_CheckExact(operands.get()) && !PyList_CheckExact(operands.get())) refuse("operands are no tuple");
  if (PyBool_Check(pred.get()) || PyLong_CheckExact(pred.get()) || PyFloat_CheckExact(pred.get())) {
    const bool holds = truth(pred).value();
    arms_--, note_transforms();
    std::vector<PyObject*> given{nullptr};
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(operands.get()); i++)
      given.push_back(PySequence_Fast_GET_ITEM(operands.get(), i));
    try {
      return call(holds ? arguments[1] : arguments[2], given.data() + 1, given.size() - 1, {});
    } catch (const PyError&) {
      if (stopped) throw;
      PyErr_Clear();
      stop(report::Reason::raises, "an arm of torch.cond raises an exception");  // a traceback would lack torch.cond
    }
  }
  if (!graph::is_tensor(pred) || !fake::is_fake(fake::unpack(pred.get())) ||
      fake::unpack(pred.get()).scalar_type() != at::kBool || fake::unpack(pred.get()).sym_numel() != 1)
    refuse("the predicate is no single truth value");
  if (recorder.records_numbers()) refuse("after a number that only a run knows");
  if (recorder.is_silent() || fake::TransformState::now() != transforms_before_) refuse("inside of a transform");
  if (lifter.has_writes()) refuse("after a write to an outside object");
  const size_t draws = deferred_points_.size();

  Reachable reachable(lifter);
  for (size_t i = 1; i < count; i++)
    if (!reachable.add(arguments[i])) refuse("an arm can reach an object whose state cannot be seen");
  Arm arms[2];
  for (int i = 0; i < 2; i++) {
    arms[i] = trace_arm(kCond, arguments[1 + i], operands);
    if (lifter.has_writes() || deferred_points_.size() != draws || !reachable.unchanged())
      refuse("an arm changes an object");
  }
  if (!same_structure(arms[0].result, arms[1].result)) refuse("the arms give different structures");

  std::vector<at::Tensor> inputs;
  for (const Arm& arm : arms) {
    for (const at::Tensor& tensor : arm.inputs())
      if (std::none_of(inputs.begin(), inputs.end(), [&](const at::Tensor& one) { return one.is_same(tensor); }))
        inputs.push_back(tensor);
  }
  Ref given = tuple_of(inputs), results;
  {
    const Paused paused(*this);
    const graph::Recorder::Silent silent(recorder);
    std::vector<at::Tensor> made;
    for (size_t i = 0; i < arms[0].leaves.size(); i++) {
      const at::Tensor &one = fake::unpack(arms[0].leaves[i].get()), &other = fake::unpack(arms[1].leaves[i].get());
      if (!looks_like(one, other)) refuse("the arms give tensors that differ in more than their values");
      made.push_back(made_from(one, one.sizes(), one.strides(), inputs));
    }
    results = tuple_of(made);
    Ref graphs[] = {graph_of(*arms[0].program, inputs), graph_of(*arms[1].program, inputs)};
    PyObject* noted[] = {pred.get(), graphs[0].get(), graphs[1].get(), given.get()};
    static constinit Lasting<Ref> condition;
    const Ref& callee = condition.get([] { return graph::torch_name("torch._higher_order_ops.cond", "cond_op"); });
    recorder.note_call(callee, noted, 4, Ref(results), arms[0].effects | arms[1].effects);
  }
  arms_--, note_transforms();
  Py_ssize_t next = 0;
  return unflatten_part(arms[0].result, results, &next);
}

}  // namespace alternator::trace
