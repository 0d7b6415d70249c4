#include "backend/graph_request.h"

#include "backend/aot_compatibility.h"
#include "graph/export/fx_export.h"
#include "graph/export/fx_snapshot.h"
#include "lift/sources/tensor_spec.h"
#include "py/gc.h"
#include "py/lasting.h"
#include "shapes/expression_text.h"
#include "shapes/python_objects.h"

#include <algorithm>

namespace alternator::backend {

static constexpr char kCapsule[] = "alternator.export";

struct GraphRequest::Export {
  std::shared_ptr<graph::Program> program;
  const std::vector<graph::ExportedInput>* inputs;  // null: those of the program
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
    Ref module = graph::export_fx(*what.program, {.inputs = what.inputs,
                                                  .symbolic_examples = count > 2 ? arguments[2] : nullptr,
                                                  .fake_mode = count > 0 ? arguments[0] : nullptr,
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
    "export(fake_mode, module_paths, examples): the graph as a torch.fx.GraphModule"};
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
                                              {"computes_double", nullptr},
                                              {nullptr, nullptr}};
    static PyStructSequence_Desc description = {"alternator._C.GraphFacts", nullptr, fields, 6};
    PyTypeObject* made = PyStructSequence_NewType(&description);
    if (made == nullptr) throw PyError();
    return made;
  });
}

PyTypeObject* request_type() {
  static constinit Lasting<PyTypeObject*> type;
  return type.get([] {
    static PyStructSequence_Field fields[] = {
        {"export", nullptr},      {"is_as_exported", nullptr},     {"inputs", nullptr},      {"sources", nullptr},
        {"code", nullptr},        {"shape_env", nullptr},          {"runner", nullptr},      {"reason", nullptr},
        {"facts", nullptr},       {"autograd_functions", nullptr}, {"environment", nullptr}, {"symbols", nullptr},
        {"input_sizes", nullptr}, {"input_strides", nullptr},      {"numbers", nullptr},     {nullptr, nullptr}};
    static PyStructSequence_Desc description = {"alternator._C.GraphRequest", nullptr, fields, 15};
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

Ref none() { return Ref::share(Py_None); }
Ref row_of(const std::string& text, bool is_state) {
  return checked(Py_BuildValue("(sO)", text.c_str(), is_state ? Py_True : Py_False));
}

template <class Item>
Ref tuple_of(size_t count, Item&& item) {
  Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; i < count; i++) PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), Ref(item(i)).release());
  return tuple;
}

const char* name_of(fake::BackedSymbols::Reads reads) {
  switch (reads) {
    case fake::BackedSymbols::Reads::kSize:
      return "size";
    case fake::BackedSymbols::Reads::kStride:
      return "stride";
    case fake::BackedSymbols::Reads::kOffset:
      return "offset";
    case fake::BackedSymbols::Reads::kInteger:
      return "integer";
    case fake::BackedSymbols::Reads::kFloat:
      return "float";
  }
  return nullptr;
}

// The value of a symbol, as torch names such sources.
std::string text_of(const lift::Source& source, const fake::BackedSymbols::Origin& origin) {
  using enum fake::BackedSymbols::Reads;
  const std::string dimension = "[" + std::to_string(origin.dimension) + "]";
  if (origin.reads == kSize) return source.text() + ".size()" + dimension;
  if (origin.reads == kStride) return source.text() + ".stride()" + dimension;
  return origin.reads == kOffset ? source.text() + ".storage_offset()" : source.text();
}

// What the request says of the symbols of a graph.
struct Described {
  Ref inputs, sources, symbols = checked(PyTuple_New(0)), sizes = none(), strides = none(), numbers = none();
};

Described describe(const graph::Program& program, const GraphInputs& inputs, Borrowed environment) {
  Described made;
  if (inputs.symbolic == nullptr) {
    made.inputs = Ref::share(inputs.recorded);
    made.sources = tuple_of(inputs.sources.size(), [&](size_t i) {
      return row_of(inputs.sources[i]->text(), is_module_state(*inputs.sources[i]));
    });
    return made;
  }
  const SymbolicInputs& symbolic = *inputs.symbolic;
  const size_t count = symbolic.inputs.size();
  const auto expression = [&](shapes::Expression node) { return shapes::python_expression(environment, node); };
  made.inputs =
      checked(PySequence_List(tuple_of(count, [&](size_t i) { return inputs.values[symbolic.positions[i]]; }).get()));
  const auto& origins = program.backed->origins();
  made.symbols = tuple_of(origins.size(), [&](size_t i) {
    const Ref node = expression(program.backed->environment.symbol(i));
    return checked(Py_BuildValue("(OssI)", node.get(), symbolic.sources_of_symbols[i]->text().c_str(),
                                 name_of(origins[i].reads), static_cast<unsigned>(origins[i].dimension)));
  });
  const auto names = [&](size_t number) { return text_of(*symbolic.sources_of_symbols[number], origins[number]); };
  made.sources = tuple_of(count, [&](size_t i) {
    if (const lift::Source* source = symbolic.sources[i]) return row_of(source->text(), is_module_state(*source));
    return row_of(shapes::text(symbolic.inputs[i].number, names), false);
  });
  made.sizes = tuple_of(count, [&](size_t i) {
    const graph::ExportedInput& input = symbolic.inputs[i];
    if (input.number != nullptr) return expression(input.number);
    if (input.sizes.empty()) return none();
    return tuple_of(input.sizes.size(), [&](size_t d) { return expression(input.sizes[d]); });
  });
  made.strides = tuple_of(count, [&](size_t i) {
    const std::vector<shapes::Expression>& strides = symbolic.inputs[i].strides;
    if (strides.empty()) return none();
    return tuple_of(strides.size(), [&](size_t d) { return expression(strides[d]); });
  });
  made.numbers = tuple_of(symbolic.computed.size(), [&](size_t i) { return expression(symbolic.computed[i]); });
  return made;
}

}  // namespace

GraphRequest::GraphRequest(const std::shared_ptr<graph::Program>& program, const GraphInputs& inputs, Borrowed code,
                           const GraphFacts& facts, const RunnerChoice& choice)
    : environment_(none()) {
  if (inputs.symbolic != nullptr)
    environment_ = shapes::python_environment({program->backed, &program->backed->environment});
  const Described described = describe(*program, inputs, environment_);
  auto made = std::make_unique<Export>();
  made->program = program;
  made->inputs = inputs.symbolic != nullptr ? &inputs.symbolic->inputs : nullptr;
  Ref capsule = checked(PyCapsule_New(made.get(), kCapsule, free_export));
  export_ = made.release();
  Ref fact_values = make(facts_type(), {text_or_none(facts.aot_incompatible), boolean(facts.has_runtime_asserts),
                                        boolean(facts.takes_subclass), boolean(facts.takes_numpy_scalar),
                                        boolean(facts.takes_generator), boolean(facts.computes_double)});
  object_ = make(
      request_type(),
      {checked(PyCFunction_New(&export_definition, capsule.get())),
       checked(PyCFunction_New(&as_exported_definition, capsule.get())), described.inputs, described.sources,
       Ref::share(code), program->shape_env ? Ref::share(program->shape_env.get()) : Ref::share(Py_None),
       text_or_none(name_of(choice.runner)), text_or_none(choice.reason), fact_values, autograd_functions(*program),
       environment_, described.symbols, described.sizes, described.strides, described.numbers});
  held_ = std::move(capsule);
}

GraphRequest::~GraphRequest() {
  export_->is_open = false;
  export_->snapshot = {};
}

}  // namespace alternator::backend
