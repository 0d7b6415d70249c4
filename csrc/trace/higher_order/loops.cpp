// torch higher-order operators: while_loop, scan, associative_scan and flex_attention. One node over subgraphs that are
// traced once, on placeholder tensors that represent any iteration or element.
#include "trace/higher_order/loops.h"
#include "trace/calls/call_dispatch.h"
#include "trace/higher_order/cond.h"
#include "trace/higher_order/functorch.h"
#include "trace/higher_order/subgraph.h"
#include "trace/symbolic/deferred_values.h"
#include "trace/torch/torch_function_modes.h"

#include "lift/lifting/write_log.h"
#include "py/import.h"
#include "py/lasting.h"
#include "trace/calls/natives.h"
#include "trace/soundness/reachable.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace alternator::trace {

namespace {

struct Operators {
  // The operators, and the functions that users call: these branch on is_compiling(), so a graph break inside them is
  // not allowed.
  Ref while_loop_op = graph::torch_name("torch._higher_order_ops.while_loop", "while_loop_op");
  Ref scan_op = graph::torch_name("torch._higher_order_ops.scan", "scan_op");
  Ref associative_op = graph::torch_name("torch._higher_order_ops.associative_scan", "associative_scan_op");
  Ref flex_op = graph::torch_name("torch._higher_order_ops.flex_attention", "flex_attention");
  Ref while_loop = graph::torch_name("torch._higher_order_ops.while_loop", "while_loop");
  Ref scan = graph::torch_name("torch._higher_order_ops.scan", "scan");
  Ref associative_scan = graph::torch_name("torch._higher_order_ops.associative_scan", "associative_scan");
};

const Operators& operators() {
  static constinit Lasting<Operators> lasting;
  return lasting.get();
}

using Tensors = std::vector<at::Tensor>;

bool holds(const Tensors& tensors, const at::Tensor& wanted) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& one) { return one.is_same(wanted); });
}

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

}  // namespace

void load_loops() { (void)operators(); }

// torch.nn.attention.flex_attention.flex_attention, which torch imports lazily.
static bool is_flex_attention(Borrowed callable) {
  if (!PyFunction_Check(callable.get())) return false;
  auto* function = callable.as<PyFunctionObject>();
  return PyUnicode_CompareWithASCIIString(function->func_qualname, "flex_attention") == 0 &&
         function->func_module != nullptr && PyUnicode_Check(function->func_module) &&
         PyUnicode_CompareWithASCIIString(function->func_module, "torch.nn.attention.flex_attention") == 0;
}

// The strides of the attention output: in the order of the query's, the last dimension innermost.
static std::vector<int64_t> strides_of_attention(const std::vector<int64_t>& sizes, at::IntArrayRef query) {
  std::vector<size_t> order{3, 2, 1, 0};  // for equal strides, the inner dimension comes first
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return query[a] < query[b]; });
  const auto fill = [&] {
    std::vector<int64_t> strides(sizes.size());
    int64_t next = 1;
    for (const size_t dimension : order) {
      strides[dimension] = next;
      next *= sizes[dimension];
    }
    return strides;
  };
  std::vector<int64_t> strides = fill();
  if (strides.back() == 1) return strides;
  order.erase(std::find(order.begin(), order.end(), sizes.size() - 1));
  order.insert(order.begin(), sizes.size() - 1);
  return fill();
}

class Loops {
 public:
  Loops(Tracer& tracer, const char* what) : tracer_(tracer), what_(what) {
    tracer.function_modes->forbid(what);
    if (tracer.recorder.records_numbers()) refuse("after an unbacked symbol");
    if (tracer.recorder.is_silent() || fake::TransformState::now() != tracer.functorch->transforms_before)
      refuse("inside a transform");
    if (tracer.lifter.write_log->has_writes()) refuse("after a write to a pre-existing object");
  }

  // (cond_fn, body_fn, carried, additional)
  Ref while_loop(PyObject* const* arguments) {
    const Tensors carried = tensors(arguments[2]);
    refuse_additional_inputs(arguments[3]);
    for (const at::Tensor& one : carried)
      if (!one.is_non_overlapping_and_dense()) refuse("a tensor with gaps or overlaps is carried");
    const Tensors placeholders = make_placeholders(carried, {});
    reach(arguments, 4);
    Arm condition = trace(arguments[0], placeholders), body = trace(arguments[1], placeholders);
    if (!graph::is_tensor(condition.result) || fake::unpack(condition.result.get()).scalar_type() != at::kBool ||
        fake::unpack(condition.result.get()).dim() != 0)
      refuse("its condition is not a 0-d bool tensor");
    if (!PyTuple_CheckExact(body.result.get()) || body.leaves.size() != carried.size() ||
        PyTuple_GET_SIZE(body.result.get()) != static_cast<Py_ssize_t>(carried.size()))
      refuse("its body does not return as many tensors as it carries");
    check_carry(body, carried);
    const Tensors captured = captured_by({&condition, &body}, placeholders);
    const Tensors all = concat(placeholders, captured), given = concat(carried, captured);
    Ref results;
    {
      const Paused paused(tracer_);
      const graph::Recorder::Silent silent(tracer_.recorder);
      Tensors made;
      for (const at::Tensor& one : carried) made.push_back(make_result(one, one.sizes(), one.strides(), given));
      results = tuple_of(made);
      Ref graphs[] = {graph_of(*condition.program, all), graph_of(*body.program, all)};
      unwrap_single_output(graphs[0]);
      Ref first = tuple_of(carried), second = tuple_of(captured);
      PyObject* noted[] = {graphs[0].get(), graphs[1].get(), first.get(), second.get()};
      tracer_.recorder.note_call(operators().while_loop_op, noted, 4, Ref(results), graph::kPure);
    }
    Py_ssize_t next = 0;
    return unflatten_result(body.result, results, &next);
  }

  // (combine_fn, init, xs, additional): returns the final carry, and the stacked outputs of all iterations.
  Ref scan(PyObject* const* arguments) {
    const Tensors carried = tensors(arguments[1]), xs = tensors(arguments[2]);
    refuse_additional_inputs(arguments[3]);
    const int64_t iterations = iterations_of(xs);
    const Tensors placeholders = make_placeholders(carried, xs);
    reach(arguments, 4);
    Arm body = trace(arguments[0], placeholders);
    // A pair: the carry, the output.
    if (!PyTuple_CheckExact(body.result.get()) || PyTuple_GET_SIZE(body.result.get()) != 2 ||
        count_of(PyTuple_GET_ITEM(body.result.get(), 0)) != carried.size() || body.leaves.size() == carried.size())
      refuse("its function does not return a pair of the carry and the output");
    check_carry(body, carried);
    const Tensors captured = captured_by({&body}, placeholders), given = concat(concat(carried, xs), captured);
    Ref results;
    {
      const Paused paused(tracer_);
      const graph::Recorder::Silent silent(tracer_.recorder);
      Tensors made;
      for (size_t i = 0; i < body.leaves.size(); i++) {
        const at::Tensor& one = fake::unpack(body.leaves[i].get());
        if (i < carried.size()) {
          made.push_back(make_result(one, one.sizes(), one.strides(), given));
          continue;
        }
        std::vector<int64_t> sizes{iterations};
        sizes.insert(sizes.end(), one.sizes().begin(), one.sizes().end());
        made.push_back(make_result(one, sizes, contiguous(sizes), given));
      }
      results = tuple_of(made);
      Ref graph = graph_of(*body.program, concat(placeholders, captured));
      Ref first = tuple_of(carried), second = tuple_of(xs), third = tuple_of(captured);
      PyObject* noted[] = {graph.get(), first.get(), second.get(), third.get()};
      tracer_.recorder.note_call(operators().scan_op, noted, 4, Ref(results), graph::kPure);
    }
    Py_ssize_t next = 0;
    return unflatten_result(body.result, results, &next);
  }

  // (combine_fn, xs, additional)
  Ref associative_scan(PyObject* const* arguments) {
    const Tensors xs = tensors(arguments[1]);
    refuse_additional_inputs(arguments[2]);
    (void)iterations_of(xs);
    const Tensors placeholders = make_placeholders({}, concat(xs, xs));
    reach(arguments, 3);
    Arm body = trace(arguments[0], placeholders);
    if (body.leaves.size() != xs.size()) refuse("its function does not return as many tensors as xs has");
    for (size_t i = 0; i < xs.size(); i++) {
      if (!xs[i].is_contiguous()) refuse("xs are not contiguous");
      if (!has_same_metadata(fake::unpack(body.leaves[i].get()), placeholders[i]))
        refuse("its function returns tensors with other metadata than its inputs");
    }
    const Tensors captured = captured_by({&body}, placeholders), given = concat(xs, captured);
    if (!captured.empty() && any_requires_grad(given))
      refuse("its function captures tensors, and a gradient is required");
    Ref results;
    {
      const Paused paused(tracer_);
      const graph::Recorder::Silent silent(tracer_.recorder);
      Tensors made;
      for (const at::Tensor& one : xs) made.push_back(make_result(one, one.sizes(), one.strides(), given));
      results = tuple_of(made);
      Ref graph = graph_of(*body.program, concat(placeholders, captured));
      Ref first = tuple_of(xs), second = tuple_of(captured);
      PyObject* noted[] = {graph.get(), first.get(), second.get()};
      tracer_.recorder.note_call(operators().associative_op, noted, 3, Ref(results), graph::kPure);
    }
    Py_ssize_t next = 0;
    return unflatten_result(body.result, results, &next);
  }

  // (query, key, value, score_mod, block_mask, scale, kernel_options)
  Ref flex_attention(PyObject* const* arguments) {
    Ref operands = checked(PyTuple_Pack(3, arguments[0], arguments[1], arguments[2]));
    Tensors given;
    for (Py_ssize_t i = 0; i < 3; i++) {
      Borrowed one = PyTuple_GET_ITEM(operands.get(), i);
      if (!graph::is_tensor(one) || !fake::is_fake(fake::unpack(one.get()))) refuse("an operand is not a tensor");
      given.push_back(fake::unpack(one.get()));
      if (given.back().dim() != 4 || given.back().scalar_type() == at::kDouble)
        refuse("operands that are not 4-d, or are float64");
    }
    const at::Tensor &query = given[0], &value = given[2];
    Borrowed mask = arguments[4];
    if (!PyTuple_CheckExact(mask.get()) || PyTuple_GET_SIZE(mask.get()) == 0 || !PyDict_CheckExact(arguments[6]))
      refuse("its arguments do not match its signature");
    reach(arguments, 7);
    Tensors placeholders;
    {
      const Paused paused(tracer_);
      const graph::Recorder::Silent silent(tracer_.recorder);
      placeholders.push_back(at::empty({}, query.options().requires_grad(false)));
      if (c10::GradMode::is_enabled() && query.requires_grad()) placeholders.back().requires_grad_(true);
      for (int i = 0; i < 4; i++)
        placeholders.push_back(at::empty({}, query.options().requires_grad(false).dtype(at::kInt)));
    }
    const Tensors indices(placeholders.begin() + 1, placeholders.end());
    const Py_ssize_t last = PyTuple_GET_SIZE(mask.get()) - 1;
    Arm score = trace(arguments[3], placeholders, /*may_alias=*/true);
    Arm masks = trace(PyTuple_GET_ITEM(mask.get(), last), indices, /*may_alias=*/true);
    for (const Arm* subgraph : {&score, &masks})
      if (!graph::is_tensor(subgraph->result) || fake::unpack(subgraph->result.get()).dim() != 0)
        refuse("score_mod or mask_mod does not return a 0-d tensor");
    const Tensors of_score = captured_by({&score}, placeholders), of_mask = captured_by({&masks}, indices);
    Ref results;
    {
      const Paused paused(tracer_);
      const graph::Recorder::Silent silent(tracer_.recorder);
      const Tensors all = concat(concat(given, of_score), of_mask);
      const std::vector<int64_t> sizes{query.size(0), query.size(1), query.size(2), value.size(3)};
      const std::vector<int64_t> rows(sizes.begin(), sizes.end() - 1);
      const at::Tensor exact = at::empty({}, query.options().requires_grad(false).dtype(at::kFloat));
      results =
          tuple_of({make_result(query, sizes, strides_of_attention(sizes, query.strides()), all),
                    make_result(exact, rows, contiguous(rows), all), make_result(exact, rows, contiguous(rows), all)});
      Ref graphs[] = {graph_of(*score.program, concat(placeholders, of_score)),
                      graph_of(*masks.program, concat(indices, of_mask))};
      for (const Ref& graph : graphs) unwrap_single_output(graph);
      Ref block = checked(PyTuple_New(last + 1));
      for (Py_ssize_t i = 0; i <= last; i++)
        PyTuple_SET_ITEM(block.get(), i, Py_NewRef(i < last ? PyTuple_GET_ITEM(mask.get(), i) : graphs[1].get()));
      Ref first = tuple_of(of_score), second = tuple_of(of_mask);
      PyObject* noted[] = {arguments[0], arguments[1], arguments[2], graphs[0].get(), block.get(),
                           arguments[5], arguments[6], first.get(),  second.get()};
      tracer_.recorder.note_call(operators().flex_op, noted, 9, Ref(results), graph::kPure);
    }
    return results;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { refuse_subgraph(what_, why); }

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

  void reach(PyObject* const* arguments, size_t count) {
    for (size_t i = 0; i < count; i++)
      if (!reachable_.add(arguments[i])) refuse("its function can reach an object whose state cannot be inspected");
  }

  Arm trace(Borrowed function, const Tensors& placeholders, bool may_alias = false) {
    const size_t deferred_before = tracer_.deferred->points.size();
    Ref operands = tuple_of(placeholders);
    Arm subgraph = trace_arm(tracer_, what_, function, operands, /*fresh=*/true);
    if (!may_alias) subgraph.check_aliases(what_);
    if (subgraph.effects != graph::kPure) refuse("its function draws random numbers");
    if (tracer_.lifter.write_log->has_writes() || tracer_.deferred->points.size() != deferred_before ||
        !reachable_.unchanged())
      refuse("its function mutates an object");
    return subgraph;
  }

  // An iteration takes the results of the previous one.
  void check_carry(const Arm& body, const Tensors& carried) const {
    for (size_t i = 0; i < carried.size(); i++)
      if (!has_same_metadata(fake::unpack(body.leaves[i].get()), carried[i]))
        refuse("an iteration returns tensors with other metadata than it takes");
  }

  static Tensors captured_by(std::initializer_list<const Arm*> subgraphs, const Tensors& placeholders) {
    Tensors found;
    for (const Arm* subgraph : subgraphs)
      for (const at::Tensor& one : subgraph->inputs())
        if (!holds(placeholders, one) && !holds(found, one)) found.push_back(one);
    return found;
  }

  static Tensors concat(Tensors first, const Tensors& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
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

  static std::vector<int64_t> contiguous(const std::vector<int64_t>& sizes) {
    std::vector<int64_t> strides(sizes.size(), 1);
    for (size_t i = sizes.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * std::max<int64_t>(sizes[i + 1], 1);
    return strides;
  }

  Tracer& tracer_;
  const char* what_;
  Reachable reachable_{tracer_.lifter};
};

Ref call_loop(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  const Operators& known = operators();
  const bool is_function = callable == Borrowed(known.while_loop) || callable == Borrowed(known.scan) ||
                           callable == Borrowed(known.associative_scan) || is_flex_attention(callable);
  if (is_function) {
    // No graph break is possible until it has finished.
    t.functorch->subgraph_depth++, t.functorch->note();
    Ref result;
    try {
      result = call_function(t, callable, arguments, positional, keyword_names);
    } catch (const PyError&) {
      if (t.stopped) throw;
      PyErr_Clear();  // eager raises in other frames
      refuse_subgraph(native_name(callable).c_str(), "it raises an exception");
    }
    t.functorch->subgraph_depth--, t.functorch->note();
    return result;
  }
  const bool is_while = callable == Borrowed(known.while_loop_op), is_scan = callable == Borrowed(known.scan_op),
             is_associative = callable == Borrowed(known.associative_op), is_flex = callable == Borrowed(known.flex_op);
  if (!is_while && !is_scan && !is_associative && !is_flex) return {};
  const char* what = is_flex ? "flex_attention" : is_while ? "while_loop" : is_scan ? "scan" : "associative_scan";
  const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
  const size_t wanted = is_flex ? 7 : is_associative ? 3 : 4;
  // A keyword can only be `additional_inputs`, the last argument.
  if (total != wanted || (positional != wanted && (is_while || is_flex || positional + 1 != wanted)))
    refuse_subgraph(what, "its arguments do not match its signature");
  if (t.functorch->subgraph_depth == 0) refuse_subgraph(what, "its operator is called directly");
  escape_all(t, arguments, total);
  Loops loops(t, what);
  if (is_flex) return loops.flex_attention(arguments);
  return is_while ? loops.while_loop(arguments) : is_scan ? loops.scan(arguments) : loops.associative_scan(arguments);
}

}  // namespace alternator::trace
