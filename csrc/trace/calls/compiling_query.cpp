#include "trace/calls/compiling_query.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/attributes.h"

#include "trace/calls/code_table.h"
#include "trace/calls/markers.h"

#include <c10/core/GradMode.h>

namespace alternator::trace {

namespace {

using Answer = bool (*)(Tracer& t, cpython::Frame* frame);

bool is_not_compiling(Tracer&, cpython::Frame*) { return false; }

// A TransformerEncoder has a fast path, which writes zeros to padded rows; it needs weights that do not require grad.
// Where eager may take it, the encoder must see that nothing is compiled.
bool lacks_fast_path(Tracer& t, cpython::Frame* frame) {
  if (!at::GradMode::is_enabled()) return false;
  PyCodeObject* const code = cpython::code_of(frame);
  for (int i = 0; i < code->co_nlocalsplus; i++) {
    PyObject* layer = frame->localsplus[i];
    if (layer == nullptr ||
        PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(code->co_localsplusnames, i), "first_layer") != 0)
      continue;
    Ref value = Ref::share(layer);
    if (Py_IS_TYPE(layer, &lazy_type)) {  // after a break it may still be lazy
      auto* lazy = reinterpret_cast<LazyObject*>(layer);
      value = t.lifter.lift(lazy->value, lazy->source);
    }
    for (const char* name : {"self_attn", "in_proj_weight"})
      value = get_attribute(t, value, checked(PyUnicode_InternFromString(name)));
    return graph::is_tensor(value) && fake::unpack(value.get()).requires_grad();
  }
  return false;
}

constexpr CodeTable<Answer>::Row kQuerying[] = {
    // With hooks it avoids a try block under TorchDynamo. Here it runs as in eager, with its always-called hooks.
    {"torch.nn.modules.module", "Module._call_impl", is_not_compiling},
    // Behind torch.compiler.nested_compile_region: TorchDynamo replaces this function. Otherwise it calls the region.
    {"torch._higher_order_ops.invoke_subgraph", "invoke_subgraph_placeholder", is_not_compiling},
    // A frame that resumes after a break inside of it (Mark::kNumber): eager takes the scalar.
    {"torch.optim.optimizer", "_get_value", is_not_compiling},
    {"torch.nn.modules.transformer", "TransformerEncoder.forward", lacks_fast_path},
};

// The differentiable collectives query it in order to refuse: they run eagerly.
bool refuses_compilation(cpython::Frame* frame) {
  PyObject* const collectives = loaded_module("torch.distributed.nn.functional");
  return collectives != nullptr && PyModule_Check(collectives) && PyModule_GetDict(collectives) == frame->f_globals;
}

}  // namespace

Ref answer_compiling_query(Tracer& t) {
  if (Denying::active) return Ref::share(Py_False);
  static auto* querying = new CodeTable<Answer>(kQuerying);
  {
    const Paused paused(t);  // a module may have a __getattr__
    querying->update();      // the function that runs may be of a module that the trace has loaded
  }
  cpython::Frame* const frame = t.current_frame;
  if (const Answer* answer = querying->find(cpython::code_of(frame)))
    return Ref::share((*answer)(t, frame) ? Py_True : Py_False);
  if (refuses_compilation(frame)) stop(report::Reason::skipped, "torch.distributed.nn.functional");
  return Ref::share(Py_True);
}

}  // namespace alternator::trace
