// functorch transforms: vmap, grad, vjp, jvp and their compositions. Their Python code is traced like any other;
// entering and leaving a transform and wrapping and unwrapping a tensor are nodes, in program order.
#include "trace/higher_order/functorch.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"
#include "trace/higher_order/autograd_functions.h"
#include "trace/higher_order/backward.h"
#include "trace/torch/torch_calls.h"

#include "fake/mirror.h"
#include "graph/record/recording_mode.h"
#include "lift/sources/pointer_tables.h"
#include "py/import.h"
#include "py/lasting.h"
#include "trace/calls/handlers.h"
#include "trace/calls/natives.h"
#include "trace/torch/tensor_hooks.h"

#include <c10/core/InferenceMode.h>

namespace alternator::trace {

namespace {

// What a recorded function does, besides being a node.
enum Effect : uint8_t {
  kIsGrad = 1 << 0,          // torch.autograd.grad
  kWithGradients = 1 << 1,   // it computes gradients, or prepares tensors for that
  kDifferentiates = 1 << 2,  // it computes a derivative, or enters a level that does
  kReadsMessage = 1 << 3,    // why saved-tensor hooks are disabled
};

class Effects {
 public:
  Effects() {
    add("torch.autograd", "grad", kIsGrad | kWithGradients | kDifferentiates);
    add("torch._functorch.eager_transforms", "_autograd_grad", kWithGradients | kDifferentiates);
    add("torch._functorch.eager_transforms", "_set_tensor_requires_grad", kWithGradients);
    add("torch._functorch.predispatch", "_unwrap_for_grad", kWithGradients);
    add("torch._functorch.predispatch", "_jvp_increment_nesting", kDifferentiates);
    for (const char* name : {"_wrap_for_grad", "_unwrap_for_grad"}) add("torch._C._functorch", name, kWithGradients);
    for (const char* name : {"_grad_increment_nesting", "_jvp_increment_nesting"})
      add("torch._C._functorch", name, kDifferentiates);
    add("torch._C._autograd", "_saved_tensors_hooks_get_disabled_error_message", kReadsMessage);
  }

  static uint8_t of(Borrowed callable) {
    static constinit Lasting<Effects> lasting;
    const Effects& table = lasting.get();
    const auto found = table.effects_.find(callable.get());
    return found != table.effects_.end() ? found->second : 0;
  }

 private:
  void add(const char* module, const char* name, uint8_t effects) {
    PyObject* found = PyObject_GetAttrString(import_module(module).get(), name);  // lives as long as the process
    if (found == nullptr) return PyErr_Clear();                                   // only in other versions of torch
    effects_[found] |= effects;
  }

  lift::PointerMap<PyObject, uint8_t> effects_;
};

}  // namespace

bool register_functorch(Handlers& handlers) {
  (void)Effects::of(Py_None);
  Natives::table().each_recorded([&](Borrowed function) {
    handlers.add(function, [](Tracer& t, const Call& call) { return t.functorch->call_recorded(call); });
  });
  return true;
}

// The outputs' autograd graph must have been recorded in this trace: the rest is not known. Hooks on the inputs would
// run inside the graph.
static void check_differentiated(Tracer& tracer, const Call& call) {
  const auto each = [&](size_t position, const char* name, const auto& visit) {
    Borrowed given = call.positional > position ? call.arguments[position] : nullptr;
    for (size_t i = 0; i < call.keywords(); i++) {
      if (PyUnicode_CompareWithASCIIString(call.keyword_name(i).get(), name) == 0) given = call.keyword_value(i);
    }
    if (!given) return;
    const bool many = PyList_Check(given.get()) || PyTuple_Check(given.get());
    if (!many && !graph::is_tensor(given))
      stop(report::Reason::torch_call, "torch.autograd.grad of a value that is not a tensor");
    for (Py_ssize_t i = 0; i < (many ? PySequence_Fast_GET_SIZE(given.get()) : 1); i++)
      visit(many ? Borrowed(PySequence_Fast_GET_ITEM(given.get(), i)) : given);
  };
  each(0, "outputs", [](Borrowed output) {
    if (!graph::is_tensor(output) || fake::leads_outside(fake::unpack(output.get())))
      stop(report::Reason::torch_call, "torch.autograd.grad of a tensor computed before the trace");
  });
  each(1, "inputs", [&](Borrowed input) {
    if (graph::is_tensor(input)) guard_accumulation(tracer, input, "torch.autograd.grad");
  });
}

bool Functorch::use_iterators(const Call& call, std::vector<PyObject*>* given, std::vector<Ref>* tuples) {
  auto is_sequence = [&](size_t i) {
    if (i < call.positional) return i < 3;
    PyObject* name = call.keyword_name(i - call.positional).get();
    return PyUnicode_CompareWithASCIIString(name, "outputs") == 0 ||
           PyUnicode_CompareWithASCIIString(name, "inputs") == 0 ||
           PyUnicode_CompareWithASCIIString(name, "grad_outputs") == 0;
  };
  given->assign(1, nullptr);
  given->insert(given->end(), call.arguments, call.arguments + call.count());
  for (size_t i = 0; i < call.count(); i++) {
    PyObject* only[] = {nullptr, call.arguments[i]};
    if (!is_sequence(i) || (!PyIter_Check(only[1]) && !PyDictValues_Check(only[1]))) continue;
    try {
      tuples->push_back(trace::call(t, {reinterpret_cast<PyObject*>(&PyTuple_Type), only + 1, 1, {}}));
    } catch (const PyError&) {
      if (t.result.stopped) throw;
      PyErr_Clear();
      stop(report::Reason::raises, "inside torch.autograd.grad");  // the traceback would lack its frame
    }
    (*given)[i + 1] = tuples->back().get();
  }
  return !tuples->empty();
}

Ref Functorch::call_recorded(const Call& call) {
  const std::string name = native_name(call.callable);
  if (is_backward(t, call.callable)) return call_backward(t, call, name);
  std::vector<PyObject*> given;
  std::vector<Ref> tuples;
  const uint8_t effects = Effects::of(call.callable);
  Call recorded = call;
  if ((effects & kIsGrad) != 0 && use_iterators(call, &given, &tuples)) recorded = call.with(given.data() + 1);
  std::optional<graph::ModeOnStack> first;
  if (!t.recorder.is_silent() && !graph::is_top_mode(t.recorder.mode())) {
    // Our recording mode would see the calls inside after other modes have transformed them.
    if (!Natives::table().unseen(call.callable))
      stop(report::Reason::native_call, name + " under a user's torch-function mode");
    first.emplace(t.recorder.mode());
  }
  // No guard covers the message itself.
  if (transforms_before.hooks_message && (effects & kReadsMessage) != 0) stop(report::Reason::native_call, name);
  // It would have to run the hooks, which are registered only after the graph.
  if (t.hooks->registered && (effects & kWithGradients) != 0) stop(report::Reason::hook, name);
  if (t.autograd_functions->applied && (effects & kWithGradients) != 0)
    stop(report::Reason::backward, name + " through an autograd.Function");
  if ((effects & kIsGrad) != 0) check_differentiated(t, recorded);
  // A functorch level disables inference mode and restores it when it ends, which no scope of the graph can express.
  // Tensors computed in such a pass are not inference tensors, unlike those of a node.
  if (c10::InferenceMode::is_enabled() && (effects & kDifferentiates) != 0)
    stop(report::Reason::native_call, "a derivative inside inference mode");
  Ref result = call_torch(t, recorded);
  note();
  return result;
}

void Functorch::note() { transformed = subgraph_depth > 0 || fake::TransformState::now() != transforms_before; }

}  // namespace alternator::trace
