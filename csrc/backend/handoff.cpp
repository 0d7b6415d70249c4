#include "backend/handoff.h"

#include "fake/functorch_state.h"
#include "graph/export/fx_export.h"
#include "graph/export/fx_snapshot.h"
#include "graph/record/node_effects.h"
#include "graph/record/torch_types.h"
#include "lift/sources/numpy_types.h"
#include "py/gc.h"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>

namespace alternator::backend {

namespace {

struct Export {
  std::shared_ptr<graph::Program> program;
  graph::FxSnapshot snapshot;
  bool is_open = true;  // only while the backend is being called
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
    // Example values come from the recorded fakes: fake_mode.from_tensor() takes a thousand times as long, and
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

// The source is module.__dict__["_parameters"]["weight"], or the same with "_buffers".
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

// Undefined for a torch.Generator.
at::Tensor tensor_of(Borrowed value) { return graph::is_tensor(value) ? graph::as_tensor(value) : at::Tensor(); }

// Whether the graph makes an autograd leaf whose gradient the program may ask for.
bool makes_autograd_leaves(const graph::Program& program) {
  for (uint32_t i = 0; i < program.tensors.size(); i++) {
    const graph::TensorRecord& record = program.tensors[i];
    if (record.origin == graph::Origin::Input || !record.fake.defined() || fake::is_wrapped(record.fake) ||
        !record.fake.requires_grad() || !record.fake.is_leaf())
      continue;
    // A view of a parameter that is made in no-grad mode only counts as a leaf if it is returned.
    const bool by_name = record.fake.is_view() && record.fake._base().requires_grad();
    if (!by_name || std::ranges::find(program.outputs, i) != program.outputs.end()) return true;
  }
  return false;
}

bool is_input(const graph::Program& program, graph::Value value) {
  return value.is_tensor() && program.tensors[value.index].origin == graph::Origin::Input;
}

// Permutes sizes and strides in place, such as x.t_(): same memory, other iteration order.
bool permutes_in_place(const std::string& name) {
  return name == "t_" || name == "transpose_" || name == "swapaxes_" || name == "swapdims_" || name == "squeeze_" ||
         name == "unsqueeze_" || name == "as_strided_";
}

// A tensor's storage is replaced or grows, or an input's metadata is mutated (t_): AOTAutograd fails on these, or loses
// the aliasing that eager has. `inputs` are the real ones, which a call with `out=` may have resized.
bool changes_storage(const graph::Program& program, Borrowed inputs) {
  const bool by_name = std::any_of(program.nodes.begin(), program.nodes.end(), [&](const graph::Node& node) {
    if (!node.live) return false;
    const SavedError outer;
    const std::string name = graph::callable_name(node.function());
    if (name == "resize_" || name == "resize_as_" || name == "set_") return true;
    if (permutes_in_place(name)) return node.argument_count() > 0 && is_input(program, program.argument(node, 0));
    if (name != "__set__") return false;
    Ref attribute = Ref::steal(PyObject_GetAttrString(node.function().get(), "__self__"));
    if (!attribute) PyErr_Clear();
    return attribute && graph::callable_name(attribute) == "data";
  });
  if (by_name) return true;
  for (size_t i = 0; i < program.inputs.size(); i++) {
    const at::Tensor real = tensor_of(PyList_GetItem(inputs.get(), static_cast<Py_ssize_t>(i)));
    const at::Tensor& fake = program.tensors[program.declared[program.inputs[i]].tensor].fake;
    if (real.defined() && fake.defined() && real.layout() == at::kStrided && real.numel() != fake.numel()) return true;
  }
  return false;
}

// Finds CPU memory that two values reach through different objects: tensors over different storages, or a tensor and a
// numpy array.
class Extents {
 public:
  void add(Borrowed value) {
    if (lift::is_array(value.get())) {
      const lift::ArrayFields& fields = lift::fields_of(value);  // a guard ensures that its strides are not negative
      Py_ssize_t size = lift::element_size(value);
      for (int i = 0; i < fields.dimensions; i++) size += (fields.shape[i] - 1) * fields.strides[i];
      add(fields.data, static_cast<size_t>(size), nullptr);
      return;
    }
    const at::Tensor tensor = tensor_of(value);
    const c10::StorageImpl* storage = storage_of(tensor);
    if (storage != nullptr && tensor.device().is_cpu()) add(storage->data(), storage->nbytes(), storage);
  }
  bool overlap() {
    std::sort(all_.begin(), all_.end());
    uintptr_t tensors = 0, arrays = 0;  // where the memory of the tensors / arrays seen so far ends
    const c10::StorageImpl* before = nullptr;
    for (const Extent& extent : all_) {
      if (extent.storage != nullptr && extent.storage == before) continue;
      if (extent.begin < tensors || (extent.storage != nullptr && extent.begin < arrays)) return true;
      uintptr_t& last = extent.storage != nullptr ? tensors : arrays;
      last = std::max(last, extent.end);
      if (extent.storage != nullptr) before = extent.storage;
    }
    return false;
  }

 private:
  struct Extent {
    uintptr_t begin, end;
    const c10::StorageImpl* storage;  // null: an array's memory
    auto operator<=>(const Extent&) const = default;
  };
  void add(const void* data, size_t size, const c10::StorageImpl* storage) {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    if (size > 0) all_.push_back({begin, begin + size, storage});
  }
  std::vector<Extent> all_;
};

// Calls `each` with the tensors whose memory a mutating node may write to.
template <class Each>
void each_written(const graph::Program& program, const graph::Node& node, Each&& each) {
  const std::string name = graph::callable_name(node.function());
  const bool in_place =
      !node.wrapped && (name == "setitem" || (name.ends_with('_') && name != "__set__" && name != "__delete__"));
  for (uint32_t i = 0; i < (in_place ? std::min(1U, node.argument_count()) : node.argument_count()); i++) {
    graph::each_leaf(program.arena, program.argument(node, i), [&](graph::Value leaf) {
      if (leaf.is_tensor()) each(program.tensors[leaf.index].fake);
    });
  }
}

// Whether two tensors over one storage have an element in common; true if that is too hard to decide.
bool have_element_in_common(const at::Tensor& one, const at::Tensor& other) {
  if (one.numel() == 0 || other.numel() == 0) return false;
  const auto last = [](const at::Tensor& tensor) {
    int64_t at = tensor.storage_offset();
    for (int64_t i = 0; i < tensor.dim(); i++) at += (tensor.size(i) - 1) * tensor.stride(i);
    return at;
  };
  if (last(one) < other.storage_offset() || last(other) < one.storage_offset()) return false;
  if (one.strides() != other.strides()) return true;
  // Views of one tensor: is there an element of the one whose address is also reached by the other?
  std::vector<int64_t> order(static_cast<size_t>(one.dim()));
  for (size_t i = 0; i < order.size(); i++) order[i] = static_cast<int64_t>(i);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return one.stride(a) > one.stride(b); });
  int tries = 1000;
  const std::function<bool(size_t, int64_t)> reaches = [&](size_t at, int64_t distance) {
    if (tries-- <= 0) return true;
    if (at == order.size()) return distance == 0;
    const int64_t stride = one.stride(order[at]);
    if (stride == 0) return reaches(at + 1, distance);
    int64_t below = 0, above = 0;  // distances that the smaller strides can cover
    for (size_t i = at + 1; i < order.size(); i++) {
      below -= (other.size(order[i]) - 1) * one.stride(order[i]);
      above += (one.size(order[i]) - 1) * one.stride(order[i]);
    }
    const int64_t over = distance - above;
    const int64_t fewest = over > 0 ? (over + stride - 1) / stride : -(-over / stride);
    for (int64_t steps = std::max(fewest, 1 - other.size(order[at])); steps < one.size(order[at]); steps++) {
      const int64_t left = distance - steps * stride;
      if (left < below) break;
      if (reaches(at + 1, left)) return true;
    }
    return false;
  };
  return reaches(0, other.storage_offset() - one.storage_offset());
}

// Inputs that overlap and are mutated: AOTAutograd misses some of these overlaps, Inductor takes copies of such inputs
// for the memory itself, and its graph cache does not key on how they overlap.
bool writes_what_inputs_share(const graph::Program& program, Borrowed inputs) {
  std::unordered_map<const c10::StorageImpl*, std::vector<at::Tensor>> by_storage;
  std::unordered_set<const c10::StorageImpl*> shared;
  for (size_t i = 0; i < program.inputs.size(); i++) {
    const at::Tensor real = tensor_of(PyList_GetItem(inputs.get(), static_cast<Py_ssize_t>(i)));
    if (storage_of(real) == nullptr || real.layout() != at::kStrided) continue;
    std::vector<at::Tensor>& before = by_storage[storage_of(real)];
    if (std::any_of(before.begin(), before.end(),
                    [&](const at::Tensor& tensor) { return have_element_in_common(tensor, real); })) {
      const at::Tensor& fake = program.tensors[program.declared[program.inputs[i]].tensor].fake;
      shared.insert(storage_of(fake));
    }
    before.push_back(real);
  }
  if (shared.empty()) return false;
  return std::any_of(program.nodes.begin(), program.nodes.end(), [&](const graph::Node& node) {
    if (!node.live || (node.effects & graph::kMutates) == 0) return false;
    bool found = false;
    each_written(program, node, [&](const at::Tensor& fake) { found = found || shared.count(storage_of(fake)) != 0; });
    return found;
  });
}

// x.expand(2, 3).zero_(): AOTAutograd adds up what was written to elements that share one address.
bool writes_elements_twice(const graph::Program& program) {
  return std::any_of(program.nodes.begin(), program.nodes.end(), [&](const graph::Node& node) {
    if (!node.live || node.wrapped || (node.effects & graph::kMutates) == 0 || node.argument_count() == 0) return false;
    const SavedError outer;
    const std::string name = graph::callable_name(node.function());
    const graph::Value written = program.argument(node, 0);
    if (!written.is_tensor() || !name.ends_with('_') || name.ends_with("__")) return false;
    const at::Tensor& fake = program.tensors[written.index].fake;
    if (!fake.defined() || fake::is_wrapped(fake) || fake.layout() != at::kStrided) return false;
    for (int64_t i = 0; i < fake.dim(); i++) {
      if (fake.sym_stride(i).maybe_as_int() == 0 && fake.sym_size(i).maybe_as_int() != 1) return true;
    }
    return false;
  });
}

// If a mutated input aliases another one or requires grad, AOTAutograd regenerates the views of it that are outputs
// from the wrong base, or without their autograd history. Of aliasing tensors in a list it writes to one only.
bool gives_views_of_written(const graph::Program& program) {
  struct Inputs {
    size_t count = 0;
    bool differentiable = false, written = false;
  };
  std::unordered_map<const c10::StorageImpl*, Inputs> by_storage;
  std::unordered_set<uint32_t> are_inputs;
  for (const auto& declared : program.inputs) {
    const uint32_t id = program.declared[declared].tensor;
    are_inputs.insert(id);
    const at::Tensor& fake = program.tensors[id].fake;
    if (storage_of(fake) == nullptr || fake::is_wrapped(fake)) continue;
    Inputs& inputs = by_storage[storage_of(fake)];
    inputs.count++;
    inputs.differentiable = inputs.differentiable || fake.requires_grad();
  }
  bool writes = false;
  for (const graph::Node& node : program.nodes) {
    if (!node.live || (node.effects & graph::kMutates) == 0) continue;
    std::unordered_set<const c10::StorageImpl*> of_this;
    size_t tensors = 0;
    each_written(program, node, [&](const at::Tensor& fake) {
      if (storage_of(fake) == nullptr) return;
      tensors++;
      of_this.insert(storage_of(fake));
      const auto found = by_storage.find(storage_of(fake));
      if (found != by_storage.end()) writes = found->second.written = true;
    });
    const SavedError outer;
    if (tensors > of_this.size() && graph::callable_name(node.function()).starts_with("_foreach_")) return true;
  }
  if (!writes) return false;
  return std::any_of(program.outputs.begin(), program.outputs.end(), [&](uint32_t id) {
    if (id == graph::kNowhere || are_inputs.count(id) != 0) return false;
    const auto found = by_storage.find(storage_of(program.tensors[id].fake));
    if (found == by_storage.end() || found->first == nullptr) return false;
    const Inputs& inputs = found->second;
    return inputs.written && (inputs.count > 1 || inputs.differentiable);
  });
}

// Segments of the graph may read and write memory of numpy arrays, which no compiler knows of.
bool writes_next_to_arrays(const graph::Program& program, Borrowed inputs) {
  if (!program.has_arrays) return false;
  const auto is_array = [&](uint32_t id) { return program.tensors[id].symbol.get() == Py_None; };
  const auto touches_array = [&](const graph::Node& node) {
    bool found = node.result != graph::kNowhere && is_array(node.result);
    for (uint32_t i = 0; i < node.element_count; i++) {
      const uint32_t tensor = program.elements[node.elements + i].tensor;
      found = found || (tensor != graph::kNowhere && is_array(tensor));
    }
    program.each_tensor_argument(node, [&](uint32_t id) { found = found || is_array(id); });
    return found;
  };
  std::unordered_set<const c10::StorageImpl*> shared;
  bool array_written = false;
  for (const graph::Node& node : program.nodes) {
    if (!node.live || !touches_array(node)) continue;
    program.each_tensor_argument(node, [&](uint32_t id) { shared.insert(storage_of(program.tensors[id].fake)); });
    if (node.result != graph::kNowhere) shared.insert(storage_of(program.tensors[node.result].fake));
    array_written = array_written || (node.effects & graph::kMutates) != 0;
  }
  // AOTAutograd saves other tensors for the backward pass than eager autograd: writes would change different values.
  const bool differentiable =
      std::any_of(program.tensors.begin(), program.tensors.end(), [](const graph::TensorRecord& record) {
        return record.fake.defined() && !fake::is_wrapped(record.fake) && record.fake.requires_grad();
      });
  if (array_written && differentiable) return true;
  bool tensor_written = false;
  for (const graph::Node& node : program.nodes) {
    if (!node.live || (node.effects & (graph::kMutates | graph::kActs)) == 0 || touches_array(node)) continue;
    tensor_written = true;
    bool found = false;
    each_written(program, node, [&](const at::Tensor& fake) { found = found || shared.count(storage_of(fake)) != 0; });
    if (found) return true;
  }
  if (!tensor_written) return false;
  Extents extents;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(inputs.get()); i++) extents.add(PyList_GET_ITEM(inputs.get(), i));
  return extents.overlap();
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
  Ref source_rows = checked(PyList_New(0));
  for (const lift::Source* source : sources) {
    Ref row = checked(Py_BuildValue("(sO)", source->text().c_str(), is_module_state(*source) ? Py_True : Py_False));
    check_status(PyList_Append(source_rows.get(), row.get()));
  }
  const bool shares = writes_what_inputs_share(*program, inputs);
  const bool aot_incompatible = program->keeps_history || makes_autograd_leaves(*program) ||
                                changes_storage(*program, inputs) || writes_next_to_arrays(*program, inputs) ||
                                gives_views_of_written(*program) || writes_elements_twice(*program) || shares;
  PyObject* shape_env = program->shape_env ? program->shape_env.get() : Py_None;
  Ref result = Ref::steal(PyObject_CallFunctionObjArgs(
      backend.get(), export_function.get(), as_exported.get(), inputs.get(), source_rows.get(), code.get(), shape_env,
      program->asserts != 0 ? Py_True : Py_False, aot_incompatible ? Py_True : Py_False,
      program->has_separate_segments() ? Py_True : Py_False, program->makes_subclasses ? Py_True : Py_False, nullptr));
  what->is_open = false;
  what->snapshot = {};
  if (!result) throw PyError();
  if (result.get() == Py_None) return {.shares = shares};
  if (result.get() == Py_NotImplemented) return {.wants_numbers = true};
  PyObject* callable = nullptr;
  int boxed = 0;
  if (PyArg_ParseTuple(result.get(), "Op", &callable, &boxed) == 0) throw PyError();
  return {Ref::share(callable), boxed != 0, false};
}

Sharing::Sharing(const std::vector<Ref>& values, const std::vector<size_t>& inputs, bool has_arrays)
    : first_(inputs.size()), offsets_(inputs.size(), -1), has_arrays_(has_arrays) {
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
  if (has_arrays_) {
    Extents extents;
    for (size_t position : inputs) extents.add(values[position]);
    if (extents.overlap()) return false;
  }
  std::vector<const c10::StorageImpl*> alone;  // storages that no other input may share
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

}  // namespace alternator::backend
