// functorch's transforms: vmap, grad, vjp, jvp and what is made of them. Their own Python code is traced like any
// other; entering and leaving a transform, wrapping and unwrapping a tensor are nodes, in the order of the program.
#include "trace/core/tracer.h"

#include "fake/mirror.h"
#include "graph/record/recording_mode.h"
#include "trace/calls/natives.h"
#include "trace/torch/tensor_hooks.h"

#include <c10/core/InferenceMode.h>

namespace alternator::trace {

// The history of what is differentiated must be that of the trace: the rest of it is not known. Hooks on what it is
// differentiated by would run inside of the graph.
static void check_differentiated(Tracer& tracer, PyObject* const* arguments, size_t positional,
                                 Borrowed keyword_names) {
  const auto each = [&](size_t position, const char* name, const auto& visit) {
    Borrowed given = positional > position ? arguments[position] : nullptr;
    for (Py_ssize_t i = 0; keyword_names && i < PyTuple_GET_SIZE(keyword_names.get()); i++) {
      if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(keyword_names.get(), i), name) == 0)
        given = arguments[positional + static_cast<size_t>(i)];
    }
    if (!given) return;
    const bool many = PyList_Check(given.get()) || PyTuple_Check(given.get());
    if (!many && !graph::is_tensor(given)) stop(report::Reason::torch_call, "torch.autograd.grad of no tensor");
    for (Py_ssize_t i = 0; i < (many ? PySequence_Fast_GET_SIZE(given.get()) : 1); i++)
      visit(many ? Borrowed(PySequence_Fast_GET_ITEM(given.get(), i)) : given);
  };
  each(0, "outputs", [](Borrowed output) {
    if (!graph::is_tensor(output) || fake::leads_outside(fake::unpack(output.get())))
      stop(report::Reason::torch_call, "torch.autograd.grad of what was computed before");
  });
  each(1, "inputs", [&](Borrowed input) {
    if (graph::is_tensor(input)) guard_accumulation(tracer, input, "torch.autograd.grad");
  });
}

bool Tracer::use_iterators(PyObject* const* arguments, size_t positional, Borrowed keyword_names,
                           std::vector<PyObject*>* given, std::vector<Ref>* tuples) {
  const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
  auto is_sequence = [&](size_t i) {
    if (i < positional) return i < 3;
    PyObject* name = PyTuple_GET_ITEM(keyword_names.get(), static_cast<Py_ssize_t>(i - positional));
    return PyUnicode_CompareWithASCIIString(name, "outputs") == 0 ||
           PyUnicode_CompareWithASCIIString(name, "inputs") == 0 ||
           PyUnicode_CompareWithASCIIString(name, "grad_outputs") == 0;
  };
  given->assign(1, nullptr);
  given->insert(given->end(), arguments, arguments + total);
  for (size_t i = 0; i < total; i++) {
    if (!is_sequence(i) || (!PyIter_Check(arguments[i]) && !PyDictValues_Check(arguments[i]))) continue;
    PyObject* only[] = {nullptr, arguments[i]};
    try {
      tuples->push_back(call(reinterpret_cast<PyObject*>(&PyTuple_Type), only + 1, 1, {}));
    } catch (const PyError&) {
      if (stopped) throw;
      PyErr_Clear();
      stop(report::Reason::raises, "inside of torch.autograd.grad");  // a traceback would lack it
    }
    (*given)[i + 1] = tuples->back().get();
  }
  return !tuples->empty();
}

Ref Tracer::call_recorded(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  const std::string name = native_name(callable);
  if (is_backward(callable)) return call_backward(callable, name, arguments, positional, keyword_names);
  std::vector<PyObject*> given;
  std::vector<Ref> tuples;
  if (name == "torch.autograd.grad" && use_iterators(arguments, positional, keyword_names, &given, &tuples))
    arguments = given.data() + 1;
  std::optional<graph::ModeOnStack> first;
  if (!recorder.is_silent() && !graph::is_top_mode(recorder.mode())) {
    // Ours would see what others make of the calls inside.
    if (!Natives::table().unseen(callable))
      stop(report::Reason::native_call, name + " under a torch-function mode of the program's");
    first.emplace(recorder.mode());
  }
  // Which message it is belongs to no guard.
  if (transforms_before_.hooks_message && name.ends_with("disabled_error_message"))
    stop(report::Reason::native_call, name);
  // It would run the hooks, which are registered after the graph.
  if (hooked_ && name.ends_with("grad")) stop(report::Reason::hook, name);
  if (function_applied_ && name.ends_with("grad"))
    stop(report::Reason::backward, name + " through an autograd.Function");
  if (name == "torch.autograd.grad") check_differentiated(*this, arguments, positional, keyword_names);
  // A level of functorch's begins outside of inference mode, which comes back with its end: no scope of the graph does.
  // What a pass computes there is of another kind than what a node would.
  if (c10::InferenceMode::is_enabled() &&
      (name.ends_with("_grad_increment_nesting") || name.ends_with("_jvp_increment_nesting") ||
       name.ends_with("autograd_grad") || name.ends_with("autograd.grad")))
    stop(report::Reason::native_call, "a derivative inside of inference mode");
  Ref result = call_torch(callable, arguments, positional, keyword_names);
  note_transforms();
  return result;
}

void Tracer::note_transforms() { transformed_ = arms_ > 0 || fake::TransformState::now() != transforms_before_; }

}  // namespace alternator::trace
