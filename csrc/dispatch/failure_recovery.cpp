#include "dispatch/failure_recovery.h"

#include "dispatch/build_entry.h"
#include "fake/python_tensor.h"
#include "fake/saved_hooks.h"
#include "graph/record/torch_types.h"
#include "py/gc.h"
#include "trace/soundness/observable_failures.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <unordered_set>

namespace alternator::dispatch {

namespace {

// Values that a failed run computed and freed after their last use.
class Freed {
 public:
  Freed(const graph::Program& program, const graph::Failure& failure) {
    for (size_t i = 0; i < program.tensors.size() && i < failure.tensors.size(); i++) {
      const graph::TensorRecord& record = program.tensors[i];
      if (record.origin == graph::Origin::Input || failure.tensors[i]) continue;
      if (record.fake.defined()) tensors_.insert(record.fake.unsafeGetTensorImpl());
      if (record.symbol) objects_.insert(record.symbol.get());
    }
  }

  bool is_in(Borrowed value, int depth = 0) const {
    constexpr int kDeepest = 4;
    if (!value || depth > kDeepest) return false;
    PyObject* object = value.get();
    if (graph::is_tensor(value)) return tensors_.count(fake::unpack(object).unsafeGetTensorImpl()) != 0;
    if (objects_.count(object) != 0) return true;
    if (PyCell_Check(object)) return is_in(PyCell_GET(object), depth + 1);
    if (PyList_Check(object) || PyTuple_Check(object)) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); i++)
        if (is_in(PySequence_Fast_GET_ITEM(object, i), depth + 1)) return true;
    }
    PyObject *key, *item;
    for (Py_ssize_t at = 0; PyDict_Check(object) && PyDict_Next(object, &at, &key, &item) != 0;)
      if (is_in(item, depth + 1)) return true;
    return false;
  }

 private:
  std::unordered_set<const c10::TensorImpl*> tensors_;
  std::unordered_set<const PyObject*> objects_;
};

int offset_of(int index) { return index * static_cast<int>(sizeof(cpython::CodeUnit)); }

// Whether the nodes from `first` to the one that failed may run again.
bool may_repeat(const graph::Program& program, size_t first, uint32_t failed) {
  return std::all_of(program.nodes.begin() + static_cast<ptrdiff_t>(first), program.nodes.begin() + failed + 1,
                     [](const graph::Node& node) { return node.effects == graph::kPure; });
}

// Whether the retraced part is a prefix of the program that ran.
bool has_prefix(const graph::Program& whole, const graph::Program& part, uint32_t failed) {
  if (part.nodes.size() > failed || part.tensors.size() > whole.tensors.size()) return false;
  for (size_t i = 0; i < part.nodes.size(); i++) {
    const graph::Node &one = whole.nodes[i], &other = part.nodes[i];
    if (one.site != other.site || one.result != other.result || one.positional != other.positional ||
        one.keyword != other.keyword || one.elements != other.elements || one.element_count != other.element_count)
      return false;
  }
  for (size_t i = 0; i < part.tensors.size(); i++) {
    const graph::TensorRecord &one = whole.tensors[i], &other = part.tensors[i];
    if (one.origin != other.origin || one.index != other.index || one.is_symbol() != other.is_symbol()) return false;
  }
  return true;
}

// Whether the chain is at the instruction that a node was recorded in. The innermost frame is then moved to that
// instruction from the prefix of it that it stopped before (KW_NAMES, PRECALL).
bool is_at_node(Chain& chain, const graph::Program& program, const graph::Node& node) {
  constexpr int kMostParts = 8;
  uint32_t site = node.site;
  for (size_t i = 0; i < chain.size(); i++) {
    if (site == graph::kNowhere) return false;
    const auto& frame = program.sites[site];
    const int index = frame.offset / offset_of(1);
    if (program.sites.code(frame) != Borrowed(chain[i].code)) return false;
    if (i > 0 ? chain[i].current != index : index < chain[i].next || index > chain[i].next + kMostParts) return false;
    site = frame.caller;
  }
  if (site != graph::kNowhere || chain.front().continuation != Continuation::kNone) return false;
  const int index = program.sites[node.site].offset / offset_of(1);
  if (!cpython::can_throw_at(chain.front().code.as<PyCodeObject>(), index)) return false;
  chain.front().next = index;
  return true;
}

// Clears variables of frames that an exception exits at once: those that refer to values the run has freed, or all.
void drop_variables(Chain& chain, const graph::Program& part, const graph::Failure& failure, bool all) {
  const Freed freed(part, failure);
  for (FrameState& state : chain) {
    const int index = state.continuation == Continuation::kNone ? state.next : state.current;
    if (!trace::is_left_at_once(state.code.as<PyCodeObject>(), offset_of(index))) continue;
    for (Ref& local : state.locals)
      if (all || freed.is_in(local)) local.reset();
    for (Ref& value : state.stack)
      if (freed.is_in(value)) value = Ref::share(Py_None);
    if (all || freed.is_in(state.first_argument)) state.first_argument.reset();
  }
}

// The outputs of the part. False: a value was freed and cannot be recomputed.
bool take_outputs(const graph::Program& program, const graph::Program& part, graph::Failure* failure,
                  std::vector<Ref>* outputs) {
  const graph::Value list = part.result;
  std::vector<uint32_t> freed;
  auto leaf = [&](graph::Value value) {
    if (!value.is_tensor()) return Ref::share(part.arena.object(value));
    if (failure->tensors[value.index]) return Ref(failure->tensors[value.index]);
    freed.push_back(value.index);
    return Ref::share(Py_None);
  };
  auto take = [&] {
    outputs->clear();
    for (uint32_t i = 0; i < list.count(); i++)
      outputs->push_back(graph::rebuild(part.arena, part.arena[list.index + i], leaf));
  };
  take();
  if (freed.empty()) return true;
  if (!graph::compute_again(program, std::exchange(freed, {}), failure)) return false;
  take();
  return freed.empty();
}

// How a call whose graph failed continues.
enum class Recovery : uint8_t {
  kRaise,      // the instruction raises
  kRaiseOnly,  // ... and no variable of its frames is observable
  kRetry,      // the instruction is executed again, concretely
};

// Retraces as far as a point on the path to the node that failed, and cuts there: what the graph has computed so far
// replaces a run of that part.
Recovered cut_at(const Chain& chain, const Entry& failed, graph::Failure& failure, const trace::BreakPoint& point,
                 Recovery recovery, const trace::TraceOptions& options) {
  trace::OwnedTracer owned(options);
  trace::Tracer& tracer = *owned;
  guards::AmbientGuard ambient = guards::AmbientGuard::capture();
  trace::TraceResult& traced = uninterrupted(tracer.run(chain, &point));
  const graph::Program& program = failed.graph.program();
  const graph::Program& part = tracer.recorder.program();
  if (!is_whole(traced.cut, chain) || traced.stopped || waits_through_native_code(traced.cut) >= 0 ||
      !has_prefix(program, part, failure.node))
    return {};
  if (recovery == Recovery::kRetry) {
    if (!may_repeat(program, part.nodes.size(), failure.node)) return {};
  } else {
    if (!is_at_node(traced.cut, program, program.nodes[failure.node])) return {};
    drop_variables(traced.cut, part, failure, recovery == Recovery::kRaiseOnly);
  }
  try {
    Recovered left{build_entry(tracer, std::move(ambient)), {}, recovery != Recovery::kRetry};
    if (take_outputs(program, left.entry->graph.program(), &failure, &left.outputs)) return left;
  } catch (const replay::CannotRebuild&) {
  }
  return {};
}

}  // namespace

// Retracing finds the same path to the node, since the guards still hold: no Python side effect of the call has
// happened yet.
Recovered retrace_failure(const Chain& chain, const Entry& failed, graph::Failure& failure) {
  if (failed.graph.facts().transforms || failure.node >= failed.graph.program().nodes.size()) return {};
  trace::TraceOptions options = failed.traced_with;
  options.may_break = false;
  options.numpy_constants = true;
  options.until_node = failure.node;
  const WithoutCollector until_the_trace_is_gone;
  const at::RecordFunctionGuard unseen(false);
  std::vector<trace::BreakPoint> points;
  {
    trace::OwnedTracer owned(options);
    trace::TraceResult& traced = uninterrupted((*owned).run(chain, nullptr));
    if (!traced.stopped || traced.break_points.empty()) return {};
    points = std::move(traced.break_points);
  }
  options.until_node.reset();
  for (const Recovery recovery : {Recovery::kRaise, Recovery::kRaiseOnly}) {
    Recovered left = cut_at(chain, failed, failure, points.front(), recovery, options);
    if (left.entry != nullptr) return left;
  }
  if (fake::has_saved_hooks()) return {};  // the hooks would observe a tensor twice
  for (const trace::BreakPoint& point : points) {
    Recovered left = cut_at(chain, failed, failure, point, Recovery::kRetry, options);
    if (left.entry != nullptr) return left;
  }
  return {};
}

}  // namespace alternator::dispatch
