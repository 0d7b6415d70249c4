#include "backend/aot_compatibility.h"

#include "backend/memory_overlap.h"
#include "fake/functorch_state.h"
#include "graph/record/torch_types.h"
#include "py/import.h"
#include "py/lasting.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace alternator::backend {

namespace {

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

// x.data = y
bool sets_data(const graph::Node& node) {
  if (!node.has(graph::kSetsAttribute)) return false;
  const SavedError outer;
  Ref descriptor = Ref::steal(PyObject_GetAttrString(node.function().get(), "__self__"));
  if (!descriptor) PyErr_Clear();
  return descriptor && descriptor.get() == graph::torch_types().tensor_data.get();
}

// A tensor's storage is replaced or grows, or an input's metadata is mutated (t_): AOTAutograd fails on these, or loses
// the aliasing that eager has. `inputs` are the real ones, which a call with `out=` may have resized.
bool changes_storage(const graph::Program& program, Borrowed inputs) {
  const bool by_name = std::any_of(program.nodes.begin(), program.nodes.end(), [&](const graph::Node& node) {
    if (!node.live) return false;
    if (node.has(graph::kReplacesStorage) || sets_data(node)) return true;
    return node.has(graph::kRestrides) && node.argument_count() > 0 && is_input(program, program.argument(node, 0));
  });
  if (by_name) return true;
  for (size_t i = 0; i < program.inputs.size(); i++) {
    const at::Tensor real = tensor_of(PyList_GetItem(inputs.get(), static_cast<Py_ssize_t>(i)));
    const at::Tensor& fake = program.tensors[program.declared[program.inputs[i]].tensor].fake;
    if (real.defined() && fake.defined() && real.layout() == at::kStrided && real.numel() != fake.numel()) return true;
  }
  return false;
}

// Calls `each` with the storages that a mutating node may write to; null: a tensor has none.
template <class Each>
void each_written_storage(const graph::Program& program, const graph::Node& node, Each&& each) {
  program.each_written(node, [&](uint32_t id) { each(storage_of(program.tensors[id].fake)); });
}

// x.expand(2, 3).zero_(): AOTAutograd adds up what was written to elements that share one address.
bool writes_elements_twice(const graph::Program& program) {
  return std::any_of(program.nodes.begin(), program.nodes.end(), [&](const graph::Node& node) {
    if (!node.live || node.wrapped || (node.effects & graph::kMutates) == 0 || node.argument_count() == 0) return false;
    const graph::Value written = program.argument(node, 0);
    if (!written.is_tensor() || !node.has(graph::kInPlaceMethod)) return false;
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
    each_written_storage(program, node, [&](const c10::StorageImpl* storage) {
      if (storage == nullptr) return;
      tensors++;
      of_this.insert(storage);
      const auto found = by_storage.find(storage);
      if (found != by_storage.end()) writes = found->second.written = true;
    });
    if (tensors > of_this.size() && node.has(graph::kTakesLists)) return true;
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
    each_written_storage(program, node,
                         [&](const c10::StorageImpl* storage) { found = found || shared.count(storage) != 0; });
    if (found) return true;
  }
  if (!tensor_written) return false;
  Extents extents;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(inputs.get()); i++) extents.add(PyList_GET_ITEM(inputs.get(), i));
  return extents.overlap();
}

// The class whose apply() the node calls; null: it is no torch.autograd.Function. No other class method of one is a
// node.
Ref applied_function(const graph::Node& node) {
  static constinit Lasting<Ref> function;
  const Ref& base = function.get([] { return graph::torch_name("torch.autograd", "Function"); });
  const SavedError outer;
  Ref self = Ref::steal(PyObject_GetAttrString(node.function().get(), "__self__"));
  if (!self) PyErr_Clear();
  if (!self || !PyType_Check(self.get()) || !PyType_IsSubtype(self.as<PyTypeObject>(), base.as<PyTypeObject>()))
    return {};
  return self;
}

// A backward() that reads or writes more than its arguments: AOTAutograd runs it once, while it compiles. Bytecode is
// read by alternator/backward_purity.py.
std::string impure_backward(const graph::Program& program, Borrowed inputs) {
  Ref functions = autograd_functions(program);
  if (PyTuple_GET_SIZE(functions.get()) == 0) return {};
  bool takes_gradients = false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(inputs.get()); i++) {
    const at::Tensor tensor = tensor_of(PyList_GET_ITEM(inputs.get(), i));
    takes_gradients = takes_gradients || (tensor.defined() && tensor.requires_grad());
  }
  if (!takes_gradients) return {};
  Ref analysis = import_module("alternator.backward_purity");
  Ref found = checked(PyObject_CallMethod(analysis.get(), "impure_backward", "(O)", functions.get()));
  if (found.get() == Py_None) return {};
  const char* text = PyUnicode_AsUTF8(found.get());
  if (text == nullptr) throw PyError();
  return text;
}

}  // namespace

Ref autograd_functions(const graph::Program& program) {
  Ref found = checked(PyList_New(0));
  for (const graph::Node& node : program.nodes) {
    if (!node.live) continue;
    if (Ref function = applied_function(node)) check_status(PyList_Append(found.get(), function.get()));
  }
  return checked(PyList_AsTuple(found.get()));
}

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
    each_written_storage(program, node,
                         [&](const c10::StorageImpl* storage) { found = found || shared.count(storage) != 0; });
    return found;
  });
}

std::string aot_incompatibility(const graph::Program& program, Borrowed inputs, bool writes_shared) {
  if (program.keeps_history)
    return "it registers a tensor hook, or applies an autograd.Function that keeps on ctx what may change until its "
           "backward()";
  if (makes_autograd_leaves(program)) return "it makes a leaf that requires grad";
  if (changes_storage(program, inputs)) return "it gives a tensor other memory, or transposes an argument in place";
  if (writes_next_to_arrays(program, inputs)) return "it writes to memory of an array";
  if (gives_views_of_written(program)) return "it returns a view of an input that it writes to";
  if (writes_elements_twice(program)) return "it writes to a tensor whose elements share memory";
  if (writes_shared) return "it writes to memory of several inputs";
  return impure_backward(program, inputs);
}

}  // namespace alternator::backend
