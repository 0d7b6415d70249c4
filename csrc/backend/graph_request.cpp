#include "backend/graph_request.h"

#include "backend/aot_compatibility.h"
#include "graph/export/fx_export.h"
#include "graph/export/fx_snapshot.h"
#include "py/gc.h"
#include "py/lasting.h"

namespace alternator::backend {

static constexpr char kCapsule[] = "alternator.export";

struct GraphRequest::Export {
  std::shared_ptr<graph::Program> program;
  graph::FxSnapshot snapshot;
  bool is_open = true;  // only while the backend is being called
};

GraphRequest::Export& GraphRequest::export_of(PyObject* self) {
  auto* what = static_cast<Export*>(PyCapsule_GetPointer(self, kCapsule));
  if (what == nullptr) throw PyError();
  if (!what->is_open) {
    PyErr_SetString(PyExc_RuntimeError, "the graph can be exported only while the backend is called");
    throw PyError();
  }
  return *what;
}

PyObject* GraphRequest::export_graph(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  return guarded([&]() -> Ref {
    Export& what = export_of(self);
    const WithoutCollector while_nodes_are_made;
    // Example values come from the recorded fakes: fake_mode.from_tensor() takes a thousand times as long, and
    // AOTAutograd makes its own from the real inputs anyway.
    Ref module = graph::export_fx(*what.program, {.fake_mode = count > 0 ? arguments[0] : nullptr,
                                                  .example_inputs = nullptr,
                                                  .module_paths = count > 1 ? arguments[1] : nullptr});
    what.snapshot = graph::FxSnapshot(module);
    return module;
  });
}

PyObject* GraphRequest::is_as_exported(PyObject* self, PyObject* module) {
  return guarded([&]() -> Ref { return Ref::share(export_of(self).snapshot.holds(module) ? Py_True : Py_False); });
}

PyMethodDef GraphRequest::export_definition = {
    "export", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(export_graph)), METH_FASTCALL,
    "export(fake_mode, module_paths): the graph as a torch.fx.GraphModule"};
PyMethodDef GraphRequest::as_exported_definition = {
    "is_as_exported", is_as_exported, METH_O,
    "is_as_exported(module): whether its code would still do what was recorded"};

void GraphRequest::free_export(PyObject* capsule) {
  delete static_cast<Export*>(PyCapsule_GetPointer(capsule, kCapsule));
}

namespace {

// The source is module.__dict__["_parameters"]["weight"], or the same with "_buffers".
bool is_module_state(const lift::Source& source) {
  if (source.access != lift::Access::kItem || source.parent == nullptr || source.parent->access != lift::Access::kItem)
    return false;
  PyObject* key = source.parent->key.get();
  return key != nullptr && PyUnicode_Check(key) &&
         (PyUnicode_CompareWithASCIIString(key, "_parameters") == 0 ||
          PyUnicode_CompareWithASCIIString(key, "_buffers") == 0);
}

PyTypeObject* facts_type() {
  static constinit Lasting<PyTypeObject*> type;
  return type.get([] {
    static PyStructSequence_Field fields[] = {{"aot_incompatible", "why AOTAutograd must not see it, or None"},
                                              {"has_runtime_asserts", nullptr},
                                              {"takes_subclass", nullptr},
                                              {"takes_numpy_scalar", nullptr},
                                              {"takes_generator", nullptr},
                                              {nullptr, nullptr}};
    static PyStructSequence_Desc description = {"alternator._C.GraphFacts", nullptr, fields, 5};
    PyTypeObject* made = PyStructSequence_NewType(&description);
    if (made == nullptr) throw PyError();
    return made;
  });
}

PyTypeObject* request_type() {
  static constinit Lasting<PyTypeObject*> type;
  return type.get([] {
    static PyStructSequence_Field fields[] = {
        {"export", nullptr}, {"is_as_exported", nullptr},     {"inputs", nullptr}, {"sources", nullptr},
        {"code", nullptr},   {"shape_env", nullptr},          {"runner", nullptr}, {"reason", nullptr},
        {"facts", nullptr},  {"autograd_functions", nullptr}, {nullptr, nullptr}};
    static PyStructSequence_Desc description = {"alternator._C.GraphRequest", nullptr, fields, 10};
    PyTypeObject* made = PyStructSequence_NewType(&description);
    if (made == nullptr) throw PyError();
    return made;
  });
}

Ref make(PyTypeObject* type, std::initializer_list<Ref> values) {
  Ref made = checked(PyStructSequence_New(type));
  Py_ssize_t at = 0;
  for (const Ref& value : values) PyStructSequence_SET_ITEM(made.get(), at++, Ref(value).release());
  return made;
}

Ref boolean(bool value) { return Ref::share(value ? Py_True : Py_False); }
Ref text_or_none(const std::string& text) {
  return text.empty() ? Ref::share(Py_None) : checked(PyUnicode_FromString(text.c_str()));
}

}  // namespace

GraphRequest::GraphRequest(const std::shared_ptr<graph::Program>& program, Borrowed inputs,
                           const std::vector<const lift::Source*>& sources, Borrowed code, const GraphFacts& facts,
                           const RunnerChoice& choice) {
  auto made = std::make_unique<Export>();
  made->program = program;
  Ref capsule = checked(PyCapsule_New(made.get(), kCapsule, free_export));
  export_ = made.release();
  Ref source_rows = checked(PyList_New(0));
  for (const lift::Source* source : sources) {
    const bool is_state = source != nullptr && is_module_state(*source);
    const std::string text = source != nullptr ? source->text() : "a size";
    Ref row = checked(Py_BuildValue("(sO)", text.c_str(), is_state ? Py_True : Py_False));
    check_status(PyList_Append(source_rows.get(), row.get()));
  }
  Ref fact_values = make(
      facts_type(), {text_or_none(facts.aot_incompatible), boolean(facts.has_runtime_asserts),
                     boolean(facts.takes_subclass), boolean(facts.takes_numpy_scalar), boolean(facts.takes_generator)});
  object_ = make(
      request_type(),
      {checked(PyCFunction_New(&export_definition, capsule.get())),
       checked(PyCFunction_New(&as_exported_definition, capsule.get())), Ref::share(inputs), source_rows,
       Ref::share(code), program->shape_env ? Ref::share(program->shape_env.get()) : Ref::share(Py_None),
       text_or_none(name_of(choice.runner)), text_or_none(choice.reason), fact_values, autograd_functions(*program)});
  held_ = std::move(capsule);
}

GraphRequest::~GraphRequest() {
  export_->is_open = false;
  export_->snapshot = {};
}

}  // namespace alternator::backend
