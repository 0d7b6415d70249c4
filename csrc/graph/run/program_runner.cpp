#include "graph/run/program_runner.h"

#include <algorithm>
#include <set>

namespace alternator::graph {

Replay::Replay(const Program& program) : program_(program) {
  constexpr uint32_t kNever = UINT32_MAX, kAtEnd = UINT32_MAX - 1;
  std::vector<uint32_t> last_use(program.tensors.size(), kNever);
  std::vector<uint32_t> stop_of(program.nodes.size(), kNever);
  StateWalk walk(program.states.at(0));
  for (uint32_t n = 0; n < program.nodes.size(); ++n) {
    const Node& node = program.nodes[n];
    if (!node.live) continue;
    const uint32_t stop = static_cast<uint32_t>(stops_.size());
    stop_of[n] = stop;
    stops_.push_back({n, walk.to(program.states[node.state]), {}, {}});
    program.each_tensor_argument(node, [&](uint32_t tensor) { last_use[tensor] = stop; });
  }
  after_ = walk.finish(program.states[0]);
  for (uint32_t tensor : program.outputs) last_use[tensor] = kAtEnd;
  for (uint32_t tensor = 0; tensor < last_use.size(); ++tensor) {
    if (last_use[tensor] == kNever) continue;
    if (const uint32_t producer = program.producer(tensor); producer != kNowhere)
      stops_[stop_of[producer]].made.push_back(tensor);
    if (last_use[tensor] != kAtEnd) stops_[last_use[tensor]].expired.push_back(tensor);
  }
}

namespace {

// The nodes that compute tensors which a failed run has dropped.
class Recomputation {
 public:
  Recomputation(const Program& program, const Failure& failure) : program_(program), failure_(failure) {}

  // False: they cannot be run again.
  bool add(uint32_t tensor) {
    if (failure_.tensors[tensor]) return true;
    const uint32_t producer = program_.producer(tensor);
    if (producer == kNowhere || producer >= failure_.node) return false;
    if (!nodes_.insert(producer).second) return true;
    const Node& node = program_.nodes[producer];
    if (node.effects != kPure || node.separate || !use_results(node) || was_written_since(producer)) return false;
    bool possible = true;
    program_.each_tensor_argument(node, [&](uint32_t argument) { possible = possible && add(argument); });
    return possible;
  }
  const std::set<uint32_t>& nodes() const { return nodes_; }

 private:
  const void* memory_of(uint32_t tensor) const {
    const at::Tensor& fake = program_.tensors[tensor].fake;
    return fake.defined() && fake.has_storage() ? fake.storage().unsafeGetStorageImpl() : nullptr;
  }

  // A recomputed result must be unaliased: no view that is alive and no autograd history refers to the dropped one.
  bool use_results(const Node& node) {
    std::vector<uint32_t> results;
    if (node.result != kNowhere) results.push_back(node.result);
    for (uint32_t i = 0; i < node.element_count; ++i)
      if (const uint32_t made = program_.elements[node.elements + i].tensor; made != kNowhere) results.push_back(made);
    for (uint32_t made : results) {
      if (failure_.tensors[made]) continue;
      const TensorRecord& record = program_.tensors[made];
      if (record.is_symbol() || memory_of(made) == nullptr || record.fake.requires_grad()) return false;
      bool is_view = false;
      program_.each_tensor_argument(
          node, [&](uint32_t argument) { is_view = is_view || memory_of(argument) == memory_of(made); });
      for (uint32_t other = 0; !is_view && other < program_.tensors.size(); ++other)
        if (failure_.tensors[other] && memory_of(other) == memory_of(made)) return false;
    }
    return true;
  }

  // Whether memory that the node reads or produces was mutated.
  bool was_written_since(uint32_t producer) const {
    std::set<const void*> used;
    const auto use = [&](uint32_t tensor) { used.insert(memory_of(tensor)); };
    const Node& node = program_.nodes[producer];
    program_.each_tensor_argument(node, use);
    if (node.result != kNowhere) use(node.result);
    for (uint32_t i = 0; i < node.element_count; ++i)
      if (const uint32_t made = program_.elements[node.elements + i].tensor; made != kNowhere) use(made);
    bool found = used.count(nullptr) != 0;
    for (uint32_t n = producer + 1; !found && n <= failure_.node; ++n) {
      const Node& later = program_.nodes[n];
      if (!later.live || (later.effects & (kMutates | kActs | kTransforms)) == 0) continue;
      program_.each_tensor_argument(later,
                                    [&](uint32_t tensor) { found = found || used.count(memory_of(tensor)) != 0; });
      found = found || (later.effects & (kActs | kTransforms)) != 0;
    }
    return found;
  }

  const Program& program_;
  const Failure& failure_;
  std::set<uint32_t> nodes_;
};

}  // namespace

bool compute_again(const Program& program, const std::vector<uint32_t>& wanted, Failure* failure) {
  if (program.has_arrays || failure->tensors.size() != program.tensors.size()) return false;
  Recomputation recomputation(program, *failure);
  if (!std::all_of(wanted.begin(), wanted.end(), [&](uint32_t tensor) { return recomputation.add(tensor); }))
    return false;
  const Ambient now = Ambient::now();
  if (now.inference != program.states.at(0).inference) return false;
  Run run(program, std::move(failure->tensors));
  StateWalk walk(program.states[0]);
  bool complete = true;
  for (uint32_t n : recomputation.nodes()) {
    const Node& node = program.nodes[n];
    try {
      NodeStop stop{n, walk.to(program.states[node.state]), {}, {}};
      // A tensor that is still alive keeps its identity.
      if (node.result != kNowhere && !run[node.result]) stop.made.push_back(node.result);
      for (uint32_t i = 0; i < node.element_count; ++i) {
        const uint32_t made = program.elements[node.elements + i].tensor;
        if (made != kNowhere && !run[made]) stop.made.push_back(made);
      }
      run.step(stop.before);
      run.node(stop, /*whole=*/true);
    } catch (const PyError&) {
      run.unwind(n);
      PyErr_Clear();
      complete = false;
      break;
    }
  }
  if (complete) run.step(walk.finish(program.states[0]));
  now.apply();
  failure->tensors = run.take();
  return complete &&
         std::all_of(wanted.begin(), wanted.end(), [&](uint32_t tensor) { return bool(failure->tensors[tensor]); });
}

void Replay::check_count(size_t count) const {
  if (count == program_.inputs.size()) return;
  PyErr_Format(PyExc_TypeError, "the program takes %zu inputs, not %zu", program_.inputs.size(), count);
  throw PyError();
}

static Ref current_traceback() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  Ref found = Ref::share(traceback);
  PyErr_Restore(type, value, traceback);
  return found;
}

void Replay::run_nodes(Run& run, Failure* failure) const {
  for (const NodeStop& stop : stops_) {
    try {
      run.step(stop.before);
      run.node(stop);
    } catch (const PyError&) {
      if (failure != nullptr) failure->traceback = current_traceback();
      run.unwind(stop.node);
      if (failure != nullptr) {
        failure->node = stop.node;
        failure->tensors = run.take();
      }
      throw;
    }
  }
  run.step(after_);
}

Ref Replay::run(PyObject* const* inputs, size_t count) const {
  check_count(count);
  Run run(program_, inputs);
  run_nodes(run);
  return run.build(program_.result);
}

void Replay::run_each(PyObject* const* inputs, size_t count, Results* results, Failure* failure) const {
  check_count(count);
  Run run(program_, inputs);
  run_nodes(run, failure);
  const Value list = program_.result;
  ALT_CHECK(list.kind() == ValueKind::List, "the recorded result is not a list");
  for (uint32_t i = 0; i < list.count(); ++i) results->push_back(run.build(program_.arena[list.index + i]));
}

}  // namespace alternator::graph
