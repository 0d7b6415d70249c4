// flex_attention: one node over the subgraphs of score_mod and mask_mod, traced once, for any element.
#include "trace/calls/handlers.h"
#include "trace/higher_order/loops.h"
#include "trace/higher_order/subgraph.h"

#include "py/lasting.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace alternator::trace {

namespace {

constexpr const char* kName = "flex_attention";

const Ref& operator_itself() {
  static constinit Lasting<Ref> lasting;
  return lasting.get([] { return graph::torch_name("torch._higher_order_ops.flex_attention", "flex_attention"); });
}

// The strides of the attention output: in the order of the query's, the last dimension innermost.
std::vector<int64_t> strides_of_attention(const std::vector<int64_t>& sizes, at::IntArrayRef query) {
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

class FlexAttention : PlaceholderCall {
 public:
  explicit FlexAttention(Tracer& tracer) : PlaceholderCall(tracer, kName) {}

  // (query, key, value, score_mod, block_mask, scale, kernel_options)
  Ref call(PyObject* const* arguments) {
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
    Subgraph score = trace(arguments[3], placeholders, /*may_alias=*/true);
    Subgraph masks = trace(PyTuple_GET_ITEM(mask.get(), last), indices, /*may_alias=*/true);
    for (const Subgraph* subgraph : {&score, &masks})
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
      results = tuple_of({make_result(query, sizes, strides_of_attention(sizes, query.strides()), all),
                          make_result(exact, rows, contiguous_strides(rows), all),
                          make_result(exact, rows, contiguous_strides(rows), all)});
      Ref graphs[] = {graph_of(*score.program, concat(placeholders, of_score)),
                      graph_of(*masks.program, concat(indices, of_mask))};
      for (const Ref& graph : graphs) unwrap_single_output(graph);
      Ref block = checked(PyTuple_New(last + 1));
      for (Py_ssize_t i = 0; i <= last; i++)
        PyTuple_SET_ITEM(block.get(), i, Py_NewRef(i < last ? PyTuple_GET_ITEM(mask.get(), i) : graphs[1].get()));
      Ref first = tuple_of(of_score), second = tuple_of(of_mask);
      PyObject* noted[] = {arguments[0], arguments[1], arguments[2], graphs[0].get(), block.get(),
                           arguments[5], arguments[6], first.get(),  second.get()};
      tracer_.recorder.note_call(operator_itself(), noted, 9, Ref(results), graph::kPure);
    }
    return results;
  }
};

}  // namespace

bool register_flex_operator(Handlers& handlers) {
  handlers.add(operator_itself(), [](Tracer& t, const Call& call) {
    check_operator_call(t, kName, call.count() == 7 && call.positional == 7, call);
    return FlexAttention(t).call(call.arguments);
  });
  return true;
}

// torch imports its module lazily.
bool register_flex_attention(Handlers& handlers) {
  Ref name = checked(PyUnicode_InternFromString("torch.nn.attention.flex_attention"));
  Ref module = Ref::steal(PyImport_GetModule(name.get()));
  Ref function = module ? Ref::steal(PyObject_GetAttrString(module.get(), kName)) : Ref();
  if (!function) PyErr_Clear();  // not imported, or being imported
  if (function) handlers.add(function, call_public_operator);
  return static_cast<bool>(function);
}

}  // namespace alternator::trace
