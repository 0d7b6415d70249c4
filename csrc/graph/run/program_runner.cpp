#include "graph/run/program_runner.h"

#include "graph/export/state_calls.h"
#include "graph/record/record_error.h"
#include "graph/record/torch_types.h"

#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <set>

// Exported by every CPython, declared only in its private headers from 3.13 on.
extern "C" void _PyTraceback_Add(const char* function, const char* file, int line);

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
    if (const uint32_t maker = program.maker(tensor); maker != kNowhere) stops_[stop_of[maker]].made.push_back(tensor);
    if (last_use[tensor] != kAtEnd) stops_[last_use[tensor]].expired.push_back(tensor);
  }
}

// One run: the results of the nodes so far.
class Run {
 public:
  Run(const Program& program, PyObject* const* inputs) : program_(program) {
    tensors_.resize(program.tensors.size());
    for (size_t i = 0; i < program.inputs.size(); ++i)
      tensors_[program.declared[program.inputs[i]].tensor] = Ref::share(inputs[i]);
    for (const Constant& constant : program.constants)
      tensors_[constant.tensor] = checked(THPVariable_Wrap(constant.fresh ? constant.value.clone() : constant.value));
  }

  Run(const Program& program, std::vector<Ref> tensors)
      : program_(program), tensors_(std::make_move_iterator(tensors.begin()), std::make_move_iterator(tensors.end())) {}

  void set(uint32_t tensor, Ref value) { tensors_[tensor] = std::move(value); }
  const Ref& operator[](uint32_t tensor) const { return tensors_[tensor]; }
  std::vector<Ref> take() {
    return {std::make_move_iterator(tensors_.begin()), std::make_move_iterator(tensors_.end())};
  }

  void step(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      const StepCall call = step_call(step);
      c10::SmallVector<PyObject*, 4> arguments;
      if (call.takes_scope) arguments.push_back(open_.back().get());
      for (const Ref& argument : call.arguments) arguments.push_back(argument.get());
      Ref result = checked(
          PyObject_VectorcallDict(call.function.get(), arguments.data(), arguments.size(), call.keywords.get()));
      if (call.takes_scope) open_.pop_back();
      // Scopes close in the reverse order of opening, so a stack is enough.
      if (step.kind == StepKind::EnterAutocast || step.kind == StepKind::EnterInference)
        open_.push_back(std::move(result));
    }
  }

  // `whole`: also the parts of its result that the program does not use.
  void node(const Replay::Stop& stop, bool whole = false) {
    const Node& node = program_.nodes[stop.node];
    const uint32_t count = node.argument_count();
    c10::SmallVector<Ref, 4> made;                 // arguments other than tensors and constants
    c10::SmallVector<PyObject*, 16> raw{nullptr};  // the slot for PY_VECTORCALL_ARGUMENTS_OFFSET
    raw.resize_for_overwrite(count + 1);
    for (uint32_t i = 0; i < count; ++i) {
      const Value value = program_.argument(node, i);
      if (is_leaf(value.kind())) {
        raw[i + 1] = leaf(value);
      } else {
        made.push_back(build(value));
        raw[i + 1] = made.back().get();
      }
    }
    Ref result =
        checked(PyObject_Vectorcall(node.callable.get(), raw.data() + 1,
                                    node.positional | PY_VECTORCALL_ARGUMENTS_OFFSET, node.keyword_names.get()));
    c10::SmallVector<Ref, 4> parts;
    parts.resize(node.element_count);
    for (uint32_t i = 0; i < node.element_count; ++i) {
      const Element& element = program_.elements[node.elements + i];
      if (!element.live && !whole) continue;
      const Ref& container = element.container == kWhole ? result : parts[element.container - node.elements];
      parts[i] = checked(PyObject_GetItem(container.get(), element.key.get()));
    }
    for (uint32_t tensor : stop.made) {
      const TensorRecord& record = program_.tensors[tensor];
      tensors_[tensor] = record.origin == Origin::Result ? result : parts[record.index - node.elements];
    }
    for (uint32_t tensor : stop.expired) tensors_[tensor].reset();
  }

  Ref build(Value value) const {
    return rebuild(program_.arena, value, [&](Value at) { return Ref::share(leaf(at)); });
  }

  // A node failed. The error gets the user's lines, innermost first as if the frames were unwound, and the thread's
  // state is restored.
  void unwind(uint32_t failed) noexcept {
    for (uint32_t site = program_.nodes[failed].site; site != kNowhere; site = program_.sites[site].caller) {
      auto* code = program_.sites.code(program_.sites[site]).as<PyCodeObject>();
      const char* file = PyUnicode_AsUTF8(code->co_filename);
      const char* name = PyUnicode_AsUTF8(code->co_name);
      if (file != nullptr && name != nullptr) _PyTraceback_Add(name, file, program_.sites.line(site));
    }
    SavedError error;
    for (; !open_.empty(); open_.pop_back()) {
      Ref done = Ref::steal(PyObject_CallMethod(open_.back().get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
      if (!done) PyErr_WriteUnraisable(nullptr);
    }
    c10::GradMode::set_enabled(program_.states[0].grad);
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(program_.states[0].default_dtype));
    if (program_.states[0].flags) program_.states[0].flags->apply();
  }

 private:
  static bool is_leaf(ValueKind kind) { return kind <= ValueKind::Tensor; }
  // Borrowed from the program or from this run.
  PyObject* leaf(Value value) const {
    if (!value.is_tensor()) return program_.arena.object(value).get();
    ALT_CHECK(tensors_[value.index], "a tensor is used before it is made");
    return tensors_[value.index].get();
  }

  const Program& program_;
  c10::SmallVector<Ref, 16> tensors_;
  std::vector<Ref> open_;
};

// The nodes that a tensor depends on, in order. False: they cannot be run ahead of the others.
static bool needed_for(const Program& program, uint32_t tensor, std::vector<uint32_t>* nodes) {
  std::vector<bool> needed(program.nodes.size());
  if (const uint32_t maker = program.maker(tensor); maker != kNowhere) needed[maker] = true;
  for (uint32_t n = static_cast<uint32_t>(program.nodes.size()); n-- > 0;) {
    const Node& node = program.nodes[n];
    if ((node.effects & ~kRandom) != kPure) return false;
    if (!needed[n]) continue;
    if (node.effects != kPure) return false;
    nodes->insert(nodes->begin(), n);
    program.each_tensor_argument(node, [&](uint32_t argument) {
      if (const uint32_t maker = program.maker(argument); maker != kNowhere) needed[maker] = true;
    });
  }
  return true;
}

Ref value_now(const Program& program, uint32_t tensor, const fake::Session& session) {
  std::vector<uint32_t> nodes;
  const Ambient now = Ambient::now();
  if (now.inference != program.states.at(0).inference || !needed_for(program, tensor, &nodes)) return {};
  Run run(program, nullptr);
  for (const Input& input : program.declared) {
    const at::Tensor real = session.real_of(program.tensors[input.tensor].fake);
    if (real.defined()) run.set(input.tensor, checked(THPVariable_Wrap(real)));
  }
  StateWalk walk(program.states[0]);
  program.states[0].apply();
  for (uint32_t n : nodes) {
    const Node& node = program.nodes[n];
    try {
      Replay::Stop stop{n, walk.to(program.states[node.state]), {}, {}};
      if (node.result != kNowhere) stop.made.push_back(node.result);
      for (uint32_t i = 0; i < node.element_count; ++i) {
        const uint32_t made = program.elements[node.elements + i].tensor;
        if (made != kNowhere) stop.made.push_back(made);
      }
      run.step(stop.before);
      run.node(stop);
    } catch (const PyError&) {
      run.unwind(n);
      now.apply();
      throw;
    }
  }
  run.step(walk.finish(program.states[0]));
  now.apply();
  return run[tensor];
}

namespace {

// The nodes that compute tensors which a failed run has dropped.
class Recomputation {
 public:
  Recomputation(const Program& program, const Failure& failure) : program_(program), failure_(failure) {}

  // False: they cannot be run again.
  bool add(uint32_t tensor) {
    if (failure_.tensors[tensor]) return true;
    const uint32_t maker = program_.maker(tensor);
    if (maker == kNowhere || maker >= failure_.node) return false;
    if (!nodes_.insert(maker).second) return true;
    const Node& node = program_.nodes[maker];
    if (node.effects != kPure || node.apart || !use_results(node) || was_written_since(maker)) return false;
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
  bool was_written_since(uint32_t maker) const {
    std::set<const void*> used;
    const auto use = [&](uint32_t tensor) { used.insert(memory_of(tensor)); };
    const Node& node = program_.nodes[maker];
    program_.each_tensor_argument(node, use);
    if (node.result != kNowhere) use(node.result);
    for (uint32_t i = 0; i < node.element_count; ++i)
      if (const uint32_t made = program_.elements[node.elements + i].tensor; made != kNowhere) use(made);
    bool found = used.count(nullptr) != 0;
    for (uint32_t n = maker + 1; !found && n <= failure_.node; ++n) {
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
      Replay::Stop stop{n, walk.to(program.states[node.state]), {}, {}};
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
  for (const Stop& stop : stops_) {
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
