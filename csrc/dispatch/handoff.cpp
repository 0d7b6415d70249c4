#include "dispatch/handoff.h"

#include "fake/transforms.h"
#include "graph/fx_export.h"
#include "graph/fx_snapshot.h"
#include "graph/torch_types.h"
#include "py/gc.h"

#include <algorithm>

namespace alternator::dispatch {

namespace {

struct Export {
  std::shared_ptr<graph::Program> program;
  graph::FxSnapshot snapshot;
  bool is_open = true;  // while the backend is called
};
constexpr char kCapsule[] = "alternator.export";

Export& export_of(PyObject* self) {
  auto* what = static_cast<Export*>(PyCapsule_GetPointer(self, kCapsule));
  if (what == nullptr) throw PyError();
  if (!what->is_open) {
    PyErr_SetString(PyExc_RuntimeError, "the graph can be exported only while the backend is called");
    throw PyError();
  }
  return *what;
}

PyObject* export_graph(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  return guarded([&]() -> Ref {
    Export& what = export_of(self);
    const WithoutCollector while_nodes_are_made;
    // Example values are made from what was recorded: fake_mode.from_tensor() takes a thousand times as long, and
    // AOTAutograd makes its own from the real inputs anyway.
    Ref module = graph::export_fx(*what.program, {.fake_mode = count > 0 ? arguments[0] : nullptr,
                                                  .example_inputs = nullptr,
                                                  .module_paths = count > 1 ? arguments[1] : nullptr});
    what.snapshot = graph::FxSnapshot(module);
    return module;
  });
}

PyObject* is_as_exported(PyObject* self, PyObject* module) {
  return guarded([&]() -> Ref { return Ref::share(export_of(self).snapshot.holds(module) ? Py_True : Py_False); });
}

PyMethodDef export_definition = {"export", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(export_graph)),
                                 METH_FASTCALL, "export(fake_mode, module_paths): the graph as a torch.fx.GraphModule"};
PyMethodDef as_exported_definition = {"is_as_exported", is_as_exported, METH_O,
                                      "is_as_exported(module): whether its code would still do what was recorded"};

void free_export(PyObject* capsule) { delete static_cast<Export*>(PyCapsule_GetPointer(capsule, kCapsule)); }

// module.__dict__["_parameters"]["weight"], or "_buffers".
bool is_module_state(const lift::Source& source) {
  if (source.access != lift::Access::kItem || source.parent == nullptr || source.parent->access != lift::Access::kItem)
    return false;
  PyObject* key = source.parent->key.get();
  return key != nullptr && PyUnicode_Check(key) &&
         (PyUnicode_CompareWithASCIIString(key, "_parameters") == 0 ||
          PyUnicode_CompareWithASCIIString(key, "_buffers") == 0);
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

// Undefined: a generator.
at::Tensor tensor_of(Borrowed value) { return graph::is_tensor(value) ? graph::as_tensor(value) : at::Tensor(); }

// A tensor that the program makes, and whose gradient somebody may ask for.
bool makes_leaves(const graph::Program& program) {
  return std::any_of(program.tensors.begin(), program.tensors.end(), [](const graph::TensorRecord& record) {
    return record.origin != graph::Origin::Input && record.fake.defined() && !fake::is_wrapped(record.fake) &&
           record.fake.requires_grad() && record.fake.is_leaf();
  });
}

// A tensor gets other memory, or more of it: what AOTAutograd makes of that fails, or does not share what eager shares.
// `inputs` are the real ones, whose size a call with `out=` may have changed.
bool moves_memory(const graph::Program& program, Borrowed inputs) {
  const bool by_name = std::any_of(program.nodes.begin(), program.nodes.end(), [](const graph::Node& node) {
    if (!node.live) return false;
    const SavedError outer;
    Ref name = Ref::steal(PyObject_GetAttrString(node.function().get(), "__name__"));
    PyErr_Clear();
    auto is = [&](const char* text) { return PyUnicode_CompareWithASCIIString(name.get(), text) == 0; };
    return name && PyUnicode_Check(name.get()) && (is("resize_") || is("resize_as_") || is("set_"));
  });
  if (by_name) return true;
  for (size_t i = 0; i < program.inputs.size(); i++) {
    const at::Tensor real = tensor_of(PyList_GetItem(inputs.get(), static_cast<Py_ssize_t>(i)));
    const at::Tensor& fake = program.tensors[program.declared[program.inputs[i]].tensor].fake;
    if (real.defined() && fake.defined() && real.layout() == at::kStrided && real.numel() != fake.numel()) return true;
  }
  return false;
}

bool writes(const graph::Program& program) {
  return std::any_of(program.nodes.begin(), program.nodes.end(), [](const graph::Node& node) {
    return node.live && (node.effects & (graph::kMutates | graph::kActs)) != 0;
  });
}

}  // namespace

Answer hand_over(const std::shared_ptr<graph::Program>& program, Borrowed backend, Borrowed inputs,
                 const std::vector<const lift::Source*>& sources, Borrowed code) {
  auto made = std::make_unique<Export>();
  made->program = program;
  Ref capsule = checked(PyCapsule_New(made.get(), kCapsule, free_export));
  Export* what = made.release();
  Ref export_function = checked(PyCFunction_New(&export_definition, capsule.get()));
  Ref as_exported = checked(PyCFunction_New(&as_exported_definition, capsule.get()));
  Ref texts = checked(PyList_New(0));
  for (const lift::Source* source : sources) {
    Ref row = checked(Py_BuildValue("(sO)", source->text().c_str(), is_module_state(*source) ? Py_True : Py_False));
    check_status(PyList_Append(texts.get(), row.get()));
  }
  const bool is_odd = program->keeps_history || makes_leaves(*program) || moves_memory(*program, inputs) ||
                      (program->has_arrays && writes(*program));
  PyObject* shape_env = program->shape_env ? program->shape_env.get() : Py_None;
  Ref result = Ref::steal(PyObject_CallFunctionObjArgs(
      backend.get(), export_function.get(), as_exported.get(), inputs.get(), texts.get(), code.get(), shape_env,
      program->asserts != 0 ? Py_True : Py_False, is_odd ? Py_True : Py_False,
      program->has_apart() ? Py_True : Py_False, program->makes_subclasses ? Py_True : Py_False, nullptr));
  what->is_open = false;
  what->snapshot = {};
  if (!result) throw PyError();
  if (result.get() == Py_None) return {};
  PyObject* callable = nullptr;
  int boxed = 0;
  if (PyArg_ParseTuple(result.get(), "Op", &callable, &boxed) == 0) throw PyError();
  return {Ref::share(callable), boxed != 0};
}

Sharing::Sharing(const std::vector<Ref>& values, const std::vector<size_t>& inputs)
    : first_(inputs.size()), offsets_(inputs.size(), -1) {
  for (size_t i = 0; i < inputs.size(); i++) {
    const at::Tensor tensor = tensor_of(values[inputs[i]]);
    first_[i] = i;
    for (size_t before = 0; before < i && first_[i] == i; before++) {
      const at::Tensor other = tensor_of(values[inputs[before]]);
      if (storage_of(tensor) == nullptr || storage_of(tensor) != storage_of(other)) continue;
      first_[i] = before;
      offsets_[i] = tensor.storage_offset();
      offsets_[before] = other.storage_offset();
    }
  }
}

bool Sharing::holds(const std::vector<Ref>& values, const std::vector<size_t>& inputs) const {
  std::vector<const c10::StorageImpl*> alone;  // those that may be nobody else's
  alone.reserve(first_.size());
  for (size_t i = 0; i < first_.size(); i++) {
    const at::Tensor tensor = tensor_of(values[inputs[i]]);
    const c10::StorageImpl* storage = storage_of(tensor);
    if (offsets_[i] >= 0 && tensor.storage_offset() != offsets_[i]) return false;
    if (first_[i] != i) {
      if (storage != storage_of(tensor_of(values[inputs[first_[i]]]))) return false;
    } else if (storage != nullptr) {
      alone.push_back(storage);
    }
  }
  std::sort(alone.begin(), alone.end());
  return std::adjacent_find(alone.begin(), alone.end()) == alone.end();
}

}  // namespace alternator::dispatch
