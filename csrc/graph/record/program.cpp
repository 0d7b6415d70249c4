#include "graph/record/program.h"

#include <algorithm>
#include <unordered_set>

namespace alternator::graph {

uint32_t Program::producer(uint32_t tensor) const {
  const TensorRecord& record = tensors[tensor];
  if (record.origin == Origin::Result) return record.index;
  if (record.origin == Origin::Element) return elements[record.index].node;
  return kNowhere;
}

bool Program::may_write_to_inputs() const {
  std::unordered_set<const void*> memory;
  for (uint32_t position : inputs) {
    if (declared[position].number != nullptr) continue;
    const at::Tensor& fake = tensors[declared[position].tensor].fake;
    if (tensors[declared[position].tensor].symbol.get() == Py_None) continue;  // an array: see Recorder::finish()
    if (!declared[position].version || !fake.has_storage()) return true;
    if (fake.unsafeGetTensorImpl()->version_counter().current_version() != *declared[position].version) return true;
    memory.insert(fake.storage().unsafeGetStorageImpl());
  }
  // Writes that no version counter shows: running statistics, and `x.data`, which does not share the version counter of
  // x.
  for (const Node& node : nodes) {
    if (!node.live || (node.effects & kMutates) == 0) continue;
    bool found = false;
    each_tensor_argument(node, [&](uint32_t id) {
      const TensorRecord& record = tensors[id];
      if ((record.origin == Origin::Input && !node.has(kUnversioned)) || !record.fake.defined() ||
          !record.fake.has_storage())
        return;
      found = found || memory.count(record.fake.storage().unsafeGetStorageImpl()) != 0;
    });
    if (found) return true;
  }
  return false;
}

size_t Program::live_count() const {
  size_t count = 0;
  for (const Node& node : nodes) count += node.live;
  return count;
}

bool Program::has_separate_segments() const {
  // Kernels read these flags, and factories the default dtype, when a graph runs; a compiler bakes them in when it
  // compiles.
  const Ambient& entry = states[0];
  const auto is_separate = [&](const Node& node) {
    const Ambient& state = states[node.state];
    return node.separate || state.default_dtype != entry.default_dtype ||
           (entry.flags && state.flags->differ_in(*entry.flags, fake::kKernels));
  };
  return std::any_of(nodes.begin(), nodes.end(), [&](const Node& node) { return node.live && is_separate(node); });
}

bool Program::grad_around() const {
  const bool outermost = has_separate_segments() ? states[0].grad : grad_sets.outermost().value_or(states[0].grad);
  if (outermost || states[0].inference) return outermost;
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](const Node& node) { return node.live && states[node.state].grad; });
}

void Program::finish(Unused unused) {
  mark_live(unused);
  settle_constants();
  order_inputs();
  grad_sets.finish(static_cast<uint32_t>(nodes.size()));
}

void Program::mark_live(Unused unused) {
  std::vector<bool> used(tensors.size());
  each_leaf(arena, result, [&](Value leaf) {
    if (leaf.is_tensor()) used[leaf.index] = true;
  });

  for (Element& element : elements) element.live = false;
  // A node only uses results of earlier nodes, so one pass from the end visits every use before its definition.
  for (uint32_t n = static_cast<uint32_t>(nodes.size()); n-- > 0;) {
    Node& node = nodes[n];
    bool live = unused == Unused::kStay || node.effects != kPure || (node.result != kNowhere && used[node.result]);
    for (uint32_t e = node.elements + node.element_count; e-- > node.elements;) {
      Element& element = elements[e];
      if (element.tensor != kNowhere && used[element.tensor]) element.live = true;
      if (!element.live) continue;
      live = true;
      if (element.container != kWhole) elements[element.container].live = true;  // it comes earlier in the range
    }
    node.live = live;
    if (live) each_tensor_argument(node, [&](uint32_t tensor) { used[tensor] = true; });
  }
}

// A constant that the program mutates or returns (itself or a view) must be a new tensor in every run.
void Program::settle_constants() {
  if (constants.empty()) return;
  std::unordered_set<const void*> given_out;
  each_leaf(arena, result, [&](Value leaf) {
    if (!leaf.is_tensor()) return;
    const at::Tensor& tensor = tensors[leaf.index].fake;
    if (tensor.defined() && tensor.has_storage()) given_out.insert(tensor.storage().unsafeGetStorageImpl());
  });
  for (Constant& constant : constants) {
    const at::Tensor& fake = tensors[constant.tensor].fake;
    c10::TensorImpl* impl = fake.unsafeGetTensorImpl();
    const bool written = impl->is_inference() || impl->version_counter().current_version() != constant.version;
    const bool escapes = !fake.has_storage() || given_out.count(fake.storage().unsafeGetStorageImpl()) != 0;
    constant.fresh = written || escapes;
  }
}

void Program::order_inputs() {
  std::vector<bool> placed(tensors.size());
  auto use = [&](uint32_t tensor) {
    if (placed[tensor] || tensors[tensor].origin != Origin::Input) return;
    placed[tensor] = true;
    inputs.push_back(tensors[tensor].index);
  };
  for (const Node& node : nodes)
    if (node.live) each_tensor_argument(node, use);
  std::vector<bool> returned(tensors.size());
  each_leaf(arena, result, [&](Value leaf) {
    if (!leaf.is_tensor() || returned[leaf.index]) return;
    returned[leaf.index] = true;
    outputs.push_back(leaf.index);
    use(leaf.index);
  });
}

Ref unflatten(const Program& program, Borrowed tensors) {
  std::vector<Ref> by_number(program.tensors.size());
  for (size_t i = 0; i < program.outputs.size(); ++i)
    by_number[program.outputs[i]] = checked(PySequence_GetItem(tensors.get(), static_cast<Py_ssize_t>(i)));
  return rebuild(program.arena, program.result, [&](Value leaf) {
    return leaf.is_tensor() ? by_number[leaf.index] : Ref::share(program.arena.object(leaf));
  });
}

int Program::traverse(visitproc visit, void* argument) {
  int status = 0;
  auto see = [&](const Ref& object) {
    if (status == 0 && object) status = visit(object.get(), argument);
  };
  for (const Node& node : nodes) see(node.callable), see(node.wrapped), see(node.keyword_names), see(node.bindings);
  for (const Element& element : elements) see(element.key);
  for (const Input& input : declared) see(input.label), see(input.source);
  for (const TensorRecord& record : tensors) see(record.symbol), see(record.torch_symbol);
  for (const Ref& object : arena.objects()) see(object);
  see(shape_env);
  sites.each_object(see);
  modules.each_object(see);
  return status;
}

void Program::clear() {
  // Moved out first: destructors may run user code that accesses this program.
  auto old_nodes = std::exchange(nodes, {});
  auto old_elements = std::exchange(elements, {});
  auto old_declared = std::exchange(declared, {});
  auto old_tensors = std::exchange(tensors, {});
  auto old_constants = std::exchange(constants, {});
  auto old_arena = std::exchange(arena, {});
  auto old_sites = std::exchange(sites, {});
  auto old_modules = std::exchange(modules, {});
  Ref old_env = std::exchange(shape_env, {});
  inputs.clear();
  outputs.clear();
  result = Value{};
}

}  // namespace alternator::graph
