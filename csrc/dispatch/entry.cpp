#include "dispatch/entry.h"

#include "graph/fx_export.h"
#include "trace/tracer.h"

namespace alternator::dispatch {

static std::unique_ptr<Entry> give_up(trace::Tracer& tracer, guards::AmbientGuard ambient, report::Break why) {
  auto entry = std::make_unique<Entry>();
  entry->eager_because = std::move(why);
  entry->guards =
      std::make_unique<guards::GuardProgram>(std::move(tracer.tree), std::vector<lift::Source*>(), std::move(ambient));
  return entry;
}

// The order in which a trace's parts are made: the residual says which tensors the graph returns; the recorder then
// knows which inputs it needs; their sources join the needed ones; last come the guards, which take the tree of
// sources.
std::unique_ptr<Entry> trace_entry(cpython::Frame* frame, const Backend& backend, bool last_try) {
  trace::OwnedTracer owned;
  trace::Tracer& tracer = *owned;
  guards::AmbientGuard ambient = guards::AmbientGuard::capture();
  Ref result = tracer.run(frame);
  if (!result) return give_up(tracer, std::move(ambient), *tracer.stopped);
  tracer.keep_alive.push_back(Ref(result));

  auto entry = std::make_unique<Entry>();
  std::vector<Ref> outputs;
  std::vector<lift::Source*> needed;
  try {
    entry->residual = replay::Residual::build(tracer.lifter, result, &outputs, &needed);
  } catch (const replay::CannotRebuild& error) {
    return give_up(tracer, std::move(ambient), {report::Reason::cannot_rebuild, error.what(), {}, 0});
  }
  Ref list = checked(PyList_New(static_cast<Py_ssize_t>(outputs.size())));
  for (size_t i = 0; i < outputs.size(); i++)
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), Py_NewRef(outputs[i].get()));
  entry->program = tracer.recorder.finish(list);
  entry->output_count = PyList_GET_SIZE(list.get());

  for (uint32_t declared : entry->program->inputs) {
    lift::Source* source = tracer.tree->at(PyLong_AsUnsignedLong(entry->program->declared[declared].source.get()));
    size_t position = 0;
    while (position < needed.size() && needed[position] != source) position++;
    if (position == needed.size()) needed.push_back(source);
    entry->inputs.push_back(position);
  }
  entry->guards = std::make_unique<guards::GuardProgram>(std::move(tracer.tree), needed, std::move(ambient));
  std::vector<Ref> values;
  // Another thread may have written meanwhile, or a module was loaded late: an entry is believed only after its guards
  // hold.
  const guards::Roots roots{reinterpret_cast<PyObject*>(cpython::function_of(frame)), frame->localsplus};
  if (!entry->guards->check(roots, &values)) {
    if (last_try) throw InternalError("the guards of a new trace do not hold: " + entry->guards->failure(roots));
    return nullptr;
  }
  if (!backend.callable) {
    entry->eager = std::make_unique<graph::Replay>(*entry->program);
  } else if (entry->has_graph()) {
    Ref examples = checked(PyList_New(static_cast<Py_ssize_t>(entry->inputs.size())));
    for (size_t i = 0; i < entry->inputs.size(); i++) {
      PyList_SET_ITEM(examples.get(), static_cast<Py_ssize_t>(i), Py_NewRef(values[entry->inputs[i]].get()));
    }
    Ref module = graph::export_fx(*entry->program, {});
    entry->compiled =
        checked(PyObject_CallFunctionObjArgs(backend.callable.get(), module.get(), examples.get(), nullptr));
  } else {
    entry->eager = std::make_unique<graph::Replay>(*entry->program);
  }
  return entry;
}

Ref Entry::run(const std::vector<Ref>& values) const {
  Ref outputs;
  std::vector<PyObject*> arguments(inputs.size() + 1);
  for (size_t i = 0; i < inputs.size(); i++) arguments[i + 1] = values[inputs[i]].get();
  if (eager != nullptr) {
    outputs = eager->run(arguments.data() + 1, inputs.size());
  } else {
    outputs = checked(PyObject_Vectorcall(compiled.get(), arguments.data() + 1,
                                          inputs.size() | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
    const bool is_sequence = PyTuple_Check(outputs.get()) || PyList_Check(outputs.get());
    if (!is_sequence || PySequence_Fast_GET_SIZE(outputs.get()) != output_count) {
      PyErr_Format(PyExc_RuntimeError,
                   "alternator: what the backend made of the graph must return a tuple or list of %zd results, not %R",
                   output_count, outputs.get());
      throw PyError();
    }
  }
  return residual.run(values, outputs);
}

}  // namespace alternator::dispatch
