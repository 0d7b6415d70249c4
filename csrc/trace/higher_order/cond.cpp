// torch.cond: one node over two subgraphs. Both branches are traced, so neither may have side effects.
#include "trace/calls/call_dispatch.h"
#include "trace/calls/handlers.h"
#include "trace/higher_order/functorch.h"
#include "trace/higher_order/subgraph.h"
#include "trace/opcodes/items.h"
#include "trace/symbolic/deferred_values.h"
#include "trace/torch/torch_function_modes.h"

#include "lift/lifting/write_log.h"
#include "py/lasting.h"

#include <algorithm>

namespace alternator::trace {

namespace {

constexpr const char* kCond = "torch.cond";

[[noreturn]] void refuse(const std::string& why) { refuse_subgraph(kCond, why); }

bool same_structure(Borrowed one, Borrowed other) {
  if (graph::is_tensor(one)) return graph::is_tensor(other);
  PyObject *a = one.get(), *b = other.get();
  if (Py_TYPE(a) != Py_TYPE(b) || PySequence_Fast_GET_SIZE(a) != PySequence_Fast_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(a); i++)
    if (!same_structure(PySequence_Fast_GET_ITEM(a, i), PySequence_Fast_GET_ITEM(b, i))) return false;
  return true;
}

// The arguments of torch.cond(pred, true_fn, false_fn, operands=()).
struct Condition {
  Borrowed pred() const { return given[0]; }
  Borrowed operands() const { return given[3]; }
  Borrowed branch(bool holds) const { return given[holds ? 1 : 2]; }

  PyObject* given[4];
  Ref no_operands;
};

Condition bind_condition(const Call& call) {
  constexpr const char* kNames[] = {"pred", "true_fn", "false_fn", "operands"};
  const auto check = [](bool fits) {
    if (!fits) refuse("its arguments do not match its signature");
  };
  Condition bound{{}, checked(PyTuple_New(0))};
  bound.given[3] = bound.no_operands.get();
  check(call.positional <= 4);
  std::copy(call.arguments, call.arguments + call.positional, bound.given);
  for (size_t i = 0; i < call.keywords(); i++) {
    size_t at = call.positional;
    PyObject* name = PyTuple_GET_ITEM(call.keyword_names.get(), static_cast<Py_ssize_t>(i));
    while (at < 4 && PyUnicode_CompareWithASCIIString(name, kNames[at]) != 0) at++;
    check(at < 4);
    bound.given[at] = call.arguments[call.positional + i];
  }
  check(bound.given[0] != nullptr && bound.given[1] != nullptr && bound.given[2] != nullptr);
  return bound;
}

// The predicate is a Python scalar: the branch is inlined.
Ref call_branch(Tracer& t, Borrowed branch, Borrowed operands) {
  std::vector<PyObject*> given{nullptr};
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(operands.get()); i++)
    given.push_back(PySequence_Fast_GET_ITEM(operands.get(), i));
  try {
    return call(t, {branch, given.data() + 1, given.size() - 1, {}});
  } catch (const PyError&) {
    if (t.result.stopped) throw;
    PyErr_Clear();
    // The traceback would lack the frame of torch.cond.
    stop(report::Reason::raises, "a branch of torch.cond raises an exception");
  }
}

void check_can_record(Tracer& t, Borrowed pred) {
  if (!graph::is_tensor(pred) || !fake::is_fake(fake::unpack(pred.get())) ||
      fake::unpack(pred.get()).scalar_type() != at::kBool || fake::unpack(pred.get()).sym_numel() != 1)
    refuse("the predicate is not a bool tensor with one element");
  if (t.recorder.records_numbers()) refuse("after an unbacked symbol");
  if (t.recorder.is_silent() || fake::TransformState::now() != t.functorch->transforms_before)
    refuse("inside a transform");
  if (t.lifter.write_log->has_writes()) refuse("after a write to a pre-existing object");
}

using Branches = std::array<Subgraph, 2>;

Branches trace_branches(Tracer& t, const Condition& condition) {
  const size_t deferred_before = t.deferred->points.size();
  Reachable reachable(t.lifter);
  for (size_t i = 1; i < 4; i++)
    if (!reachable.add(condition.given[i])) refuse("a branch can reach an object whose state cannot be inspected");
  Branches branches;
  for (const bool holds : {true, false}) {
    branches[holds ? 0 : 1] = trace_subgraph(t, kCond, condition.branch(holds), condition.operands());
    if (t.lifter.write_log->has_writes() || t.deferred->points.size() != deferred_before || !reachable.unchanged())
      refuse("a branch mutates an object");
  }
  if (!same_structure(branches[0].result, branches[1].result)) refuse("the branches return different structures");
  return branches;
}

// Returns the results, flat.
Ref record_node(Tracer& t, Borrowed pred, Branches& branches) {
  Tensors inputs;
  for (const Subgraph& branch : branches) {
    for (const at::Tensor& tensor : branch.inputs())
      if (std::none_of(inputs.begin(), inputs.end(), [&](const at::Tensor& one) { return one.is_same(tensor); }))
        inputs.push_back(tensor);
  }
  Ref given = tuple_of(inputs);
  const Paused paused(t);
  const graph::Recorder::Silent silent(t.recorder);
  Tensors made;
  for (size_t i = 0; i < branches[0].leaves.size(); i++) {
    const at::Tensor &one = fake::unpack(branches[0].leaves[i].get()),
                     &other = fake::unpack(branches[1].leaves[i].get());
    if (!has_same_metadata(one, other)) refuse("the branches return tensors with different metadata");
    made.push_back(make_result(one, one.sizes(), one.strides(), inputs));
  }
  Ref results = tuple_of(made);
  Ref graphs[] = {graph_of(*branches[0].program, inputs), graph_of(*branches[1].program, inputs)};
  PyObject* noted[] = {pred.get(), graphs[0].get(), graphs[1].get(), given.get()};
  static constinit Lasting<Ref> condition;
  const Ref& callee = condition.get([] { return graph::torch_name("torch._higher_order_ops.cond", "cond_op"); });
  t.recorder.note_call(callee, noted, 4, Ref(results), branches[0].effects | branches[1].effects);
  return results;
}

// Its Python code queries is_compiling(): the trace must not break in the middle of that.
Ref call_cond(Tracer& t, const Call& call) {
  const Condition condition = bind_condition(call);
  Borrowed pred = condition.pred(), operands = condition.operands();
  t.function_modes->forbid(kCond);
  SubgraphScope scope(t);
  escape_all(t, condition.given, 4);
  if (!PyTuple_CheckExact(operands.get()) && !PyList_CheckExact(operands.get()))
    refuse("operands are not a tuple or list");
  if (PyBool_Check(pred.get()) || PyLong_CheckExact(pred.get()) || PyFloat_CheckExact(pred.get())) {
    const bool holds = truth(t, pred).value();
    scope.leave();
    return call_branch(t, condition.branch(holds), operands);
  }
  check_can_record(t, pred);
  Branches branches = trace_branches(t, condition);
  Ref results = record_node(t, pred, branches);
  scope.leave();
  Py_ssize_t next = 0;
  return unflatten_result(branches[0].result, results, &next);
}

}  // namespace

bool register_cond(Handlers& handlers) {
  handlers.add("torch", "cond", call_cond);
  return true;
}

}  // namespace alternator::trace
