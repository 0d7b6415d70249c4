// torch's loops as higher-order operators: while_loop, scan and associative_scan. One node over subgraphs that are
// traced once, on placeholder tensors that represent any iteration or element.
#include "trace/higher_order/loops.h"
#include "trace/calls/call_dispatch.h"
#include "trace/calls/python_functions.h"
#include "trace/higher_order/functorch.h"
#include "trace/higher_order/subgraph.h"

#include "py/lasting.h"
#include "trace/calls/handlers.h"
#include "trace/calls/natives.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>

namespace alternator::trace {

namespace {

struct Operators {
  Ref while_loop = graph::torch_name("torch._higher_order_ops.while_loop", "while_loop_op");
  Ref scan = graph::torch_name("torch._higher_order_ops.scan", "scan_op");
  Ref associative_scan = graph::torch_name("torch._higher_order_ops.associative_scan", "associative_scan_op");
};

const Operators& operators() {
  static constinit Lasting<Operators> lasting;
  return lasting.get();
}

class Loop : PlaceholderCall {
 public:
  using PlaceholderCall::PlaceholderCall;

  // (cond_fn, body_fn, carried, additional)
  Ref while_loop(PyObject* const* arguments) {
    const Tensors carried = tensors(arguments[2]);
    refuse_additional_inputs(arguments[3]);
    for (const at::Tensor& one : carried)
      if (!one.is_non_overlapping_and_dense()) refuse("a tensor with gaps or overlaps is carried");
    const Tensors placeholders = make_placeholders(carried, {});
    reach(arguments, 4);
    Subgraph condition = trace(arguments[0], placeholders), body = trace(arguments[1], placeholders);
    if (!graph::is_tensor(condition.result) || fake::unpack(condition.result.get()).scalar_type() != at::kBool ||
        fake::unpack(condition.result.get()).dim() != 0)
      refuse("its condition is not a 0-d bool tensor");
    if (!PyTuple_CheckExact(body.result.get()) || body.leaves.size() != carried.size() ||
        PyTuple_GET_SIZE(body.result.get()) != static_cast<Py_ssize_t>(carried.size()))
      refuse("its body does not return as many tensors as it carries");
    check_carry(body, carried);
    const Tensors captured = captured_by({&condition, &body}, placeholders);
    const Tensors all = concat(placeholders, captured), given = concat(carried, captured);
    return record(operators().while_loop, body, [&](Tensors& made) {
      for (const at::Tensor& one : carried) made.push_back(make_result(one, one.sizes(), one.strides(), given));
      Ref graph = graph_of(*condition.program, all);
      unwrap_single_output(graph);
      return std::array{std::move(graph), graph_of(*body.program, all), tuple_of(carried), tuple_of(captured)};
    });
  }

  // (combine_fn, init, xs, additional): returns the final carry, and the stacked outputs of all iterations.
  Ref scan(PyObject* const* arguments) {
    const Tensors carried = tensors(arguments[1]), xs = tensors(arguments[2]);
    refuse_additional_inputs(arguments[3]);
    const int64_t iterations = iterations_of(xs);
    const Tensors placeholders = make_placeholders(carried, xs);
    reach(arguments, 4);
    Subgraph body = trace(arguments[0], placeholders);
    // A pair: the carry, the output.
    if (!PyTuple_CheckExact(body.result.get()) || PyTuple_GET_SIZE(body.result.get()) != 2 ||
        count_of(PyTuple_GET_ITEM(body.result.get(), 0)) != carried.size() || body.leaves.size() == carried.size())
      refuse("its function does not return a pair of the carry and the output");
    check_carry(body, carried);
    const Tensors captured = captured_by({&body}, placeholders), given = concat(concat(carried, xs), captured);
    return record(operators().scan, body, [&](Tensors& made) {
      for (size_t i = 0; i < body.leaves.size(); i++) {
        const at::Tensor& one = fake::unpack(body.leaves[i].get());
        if (i < carried.size()) {
          made.push_back(make_result(one, one.sizes(), one.strides(), given));
          continue;
        }
        std::vector<int64_t> sizes{iterations};
        sizes.insert(sizes.end(), one.sizes().begin(), one.sizes().end());
        made.push_back(make_result(one, sizes, contiguous_strides(sizes), given));
      }
      return std::array{graph_of(*body.program, concat(placeholders, captured)), tuple_of(carried), tuple_of(xs),
                        tuple_of(captured)};
    });
  }

  // (combine_fn, xs, additional)
  Ref associative_scan(PyObject* const* arguments) {
    const Tensors xs = tensors(arguments[1]);
    refuse_additional_inputs(arguments[2]);
    (void)iterations_of(xs);
    const Tensors placeholders = make_placeholders({}, concat(xs, xs));
    reach(arguments, 3);
    Subgraph body = trace(arguments[0], placeholders);
    if (body.leaves.size() != xs.size()) refuse("its function does not return as many tensors as xs has");
    for (size_t i = 0; i < xs.size(); i++) {
      if (!xs[i].is_contiguous()) refuse("xs are not contiguous");
      if (!has_same_metadata(fake::unpack(body.leaves[i].get()), placeholders[i]))
        refuse("its function returns tensors with other metadata than its inputs");
    }
    const Tensors captured = captured_by({&body}, placeholders), given = concat(xs, captured);
    if (!captured.empty() && any_requires_grad(given))
      refuse("its function captures tensors, and a gradient is required");
    return record(operators().associative_scan, body, [&](Tensors& made) {
      for (const at::Tensor& one : xs) made.push_back(make_result(one, one.sizes(), one.strides(), given));
      return std::array{graph_of(*body.program, concat(placeholders, captured)), tuple_of(xs), tuple_of(captured)};
    });
  }

 private:
  // A call of the operator. `describe` makes its results, and returns its arguments: nothing of that is recorded.
  template <class Describe>
  Ref record(const Ref& loop, const Subgraph& body, Describe&& describe) {
    Ref results;
    {
      const Paused paused(tracer_);
      const graph::Recorder::Silent silent(tracer_.recorder);
      Tensors made;
      const auto arguments = describe(made);
      results = tuple_of(made);
      std::array<PyObject*, std::tuple_size_v<std::remove_cv_t<decltype(arguments)>>> noted;
      std::ranges::transform(arguments, noted.begin(), [](const Ref& one) { return one.get(); });
      tracer_.recorder.note_call(loop, noted.data(), noted.size(), Ref(results), graph::kPure);
    }
    Py_ssize_t next = 0;
    return unflatten_result(body.result, results, &next);
  }

  Tensors tensors(Borrowed sequence) const {
    if (!PyTuple_CheckExact(sequence.get()) && !PyList_CheckExact(sequence.get()))
      refuse("its operands are not a tuple or list");
    Tensors found;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.get()); i++) {
      Borrowed one = PySequence_Fast_GET_ITEM(sequence.get(), i);
      if (!graph::is_tensor(one) || !fake::is_fake(fake::unpack(one.get()))) refuse("an operand is not a tensor");
      if (holds(found, fake::unpack(one.get()))) refuse("one tensor is passed twice");
      found.push_back(fake::unpack(one.get()));
    }
    return found;
  }

  void refuse_additional_inputs(Borrowed additional) const {
    if (PyObject_Length(additional.get()) != 0) refuse("additional inputs");
  }

  int64_t iterations_of(const Tensors& xs) const {
    for (const at::Tensor& one : xs)
      if (one.dim() == 0 || one.size(0) == 0 || one.size(0) != xs[0].size(0)) refuse("xs differ in length");
    if (xs.empty()) refuse("xs are empty");
    return xs[0].size(0);
  }

  // Placeholder tensors for any iteration: like `whole`, then like slices of `sliced` along dimension 0.
  Tensors make_placeholders(const Tensors& whole, const Tensors& sliced) const {
    const Paused paused(tracer_);
    const graph::Recorder::Silent silent(tracer_.recorder);
    Tensors made;
    const auto add = [&](const at::Tensor& like, at::IntArrayRef sizes, at::IntArrayRef strides) {
      made.push_back(at::empty_strided(sizes, strides, like.options().requires_grad(false)));
      if (c10::GradMode::is_enabled() && like.requires_grad()) made.back().requires_grad_(true);
    };
    for (const at::Tensor& one : whole) add(one, one.sizes(), one.strides());
    for (const at::Tensor& one : sliced) add(one, one.sizes().slice(1), one.strides().slice(1));
    return made;
  }

  // An iteration takes the results of the previous one.
  void check_carry(const Subgraph& body, const Tensors& carried) const {
    for (size_t i = 0; i < carried.size(); i++)
      if (!has_same_metadata(fake::unpack(body.leaves[i].get()), carried[i]))
        refuse("an iteration returns tensors with other metadata than it takes");
  }

  static bool any_requires_grad(const Tensors& inputs) {
    return c10::GradMode::is_enabled() &&
           std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& one) { return one.requires_grad(); });
  }

  static size_t count_of(Borrowed structure) {
    if (graph::is_tensor(structure)) return 1;
    size_t count = 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(structure.get()); i++)
      count += count_of(PySequence_Fast_GET_ITEM(structure.get(), i));
    return count;
  }
};

}  // namespace

Ref call_public_operator(Tracer& t, const Call& call) {
  SubgraphScope scope(t);
  Ref result;
  try {
    result = call_function(t, call);
  } catch (const PyError&) {
    if (t.result.stopped) throw;
    PyErr_Clear();  // eager raises in other frames
    refuse_subgraph(native_name(call.callable).c_str(), "it raises an exception");
  }
  scope.leave();
  return result;
}

void check_operator_call(Tracer& t, const char* what, bool fits, const Call& call) {
  if (!fits) refuse_subgraph(what, "its arguments do not match its signature");
  if (t.functorch->subgraph_depth == 0) refuse_subgraph(what, "its operator is called directly");
  escape_all(t, call);
}

bool register_loops(Handlers& handlers) {
  handlers.add("torch._higher_order_ops.while_loop", "while_loop", call_public_operator);
  handlers.add("torch._higher_order_ops.scan", "scan", call_public_operator);
  handlers.add("torch._higher_order_ops.associative_scan", "associative_scan", call_public_operator);
  handlers.add(operators().while_loop, [](Tracer& t, const Call& call) {
    check_operator_call(t, "while_loop", call.count() == 4 && call.positional == 4, call);
    return Loop(t, "while_loop").while_loop(call.arguments);
  });
  // A keyword can only be `additional_inputs`, the last argument.
  handlers.add(operators().scan, [](Tracer& t, const Call& call) {
    check_operator_call(t, "scan", call.count() == 4 && call.positional >= 3, call);
    return Loop(t, "scan").scan(call.arguments);
  });
  handlers.add(operators().associative_scan, [](Tracer& t, const Call& call) {
    check_operator_call(t, "associative_scan", call.count() == 3 && call.positional >= 2, call);
    return Loop(t, "associative_scan").associative_scan(call.arguments);
  });
  return true;
}

}  // namespace alternator::trace
