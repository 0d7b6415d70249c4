// Traces a stopped chain of frames and builds an entry from the trace.
#include "backend/graph_scopes.h"
#include "backend/handoff.h"
#include "dispatch/entry.h"
#include "dispatch/failure_recovery.h"
#include "fake/python_tensor.h"
#include "fake/saved_hooks.h"
#include "graph/record/node_effects.h"
#include "graph/record/record_error.h"
#include "interpreter/frame_values.h"
#include "lift/lifting/numpy_scalar_inputs.h"
#include "lift/lifting/unspecialized.h"
#include "lift/lifting/write_log.h"
#include "py/gc.h"
#include "trace/core/frame_access.h"
#include "trace/core/tracer.h"
#include "trace/numpy/concrete_arrays.h"
#include "trace/soundness/observable_failures.h"
#include "trace/symbolic/deferred_values.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace alternator::dispatch {

namespace {

// Objects that die with a trace may be torch context managers that were never exited: the state they would restore is
// restored here.
class ThreadAsBefore {
 public:
  ThreadAsBefore() = default;
  ~ThreadAsBefore() { before_.restore(); }
  ThreadAsBefore(const ThreadAsBefore&) = delete;
  ThreadAsBefore& operator=(const ThreadAsBefore&) = delete;

 private:
  const fake::TransformsAsBefore before_;
};

// Seconds since construction, or since the last lap.
class Clock {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(begin_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

static std::unique_ptr<Entry> give_up(trace::Tracer& tracer, guards::AmbientGuard ambient, Entry::Phases phases,
                                      report::Break why) {
  auto entry = std::make_unique<Entry>();
  entry->phases = phases;
  entry->eager_because = std::move(why);
  entry->guards =
      std::make_unique<guards::GuardProgram>(std::move(tracer.tree), std::vector<lift::Source*>(), std::move(ambient));
  return entry;
}

static bool has_effects(const graph::Program& program, int effects) {
  for (const graph::Node& node : program.nodes) {
    if (node.live && (node.effects & effects) != 0) return true;
  }
  return false;
}

static bool differentiates(const graph::Program& program) {
  return std::any_of(program.nodes.begin(), program.nodes.end(), [](const graph::Node& node) {
    return node.live && graph::callable_name(node.function()) == "grad";
  });
}

// A tensor that the recorder did not see being made (by code under DisableTorchFunction) cannot be returned.
static auto finish_recording(graph::Recorder& recorder, Borrowed outputs) {
  try {
    return recorder.finish(outputs, graph::Unused::kStay);
  } catch (const PyError&) {
    if (!PyErr_ExceptionMatches(graph::record_error_class().get())) throw;
    PyErr_Clear();
    throw replay::CannotRebuild("a tensor that was made while torch functions were disabled");
  }
}

// A graph may run again after a failed speculated check only if its first run had no side effects.
static bool may_run_twice(const graph::Program& program) {
  return !has_effects(program, graph::kActs | graph::kTransforms) && !program.may_write_to_inputs() &&
         !(program.has_arrays && has_effects(program, graph::kMutates));
}

// Whether the graph runs user or library code: a custom operator, an autograd.Function, a tensor subclass.
static bool calls_others(const graph::Program& program) {
  const auto is_torchs = [](Borrowed module) {
    if (!module || !PyUnicode_Check(module.get())) return false;
    const std::string_view name = PyUnicode_AsUTF8(module.get());
    return name == "torch" || name.starts_with("torch.") || name == "_operator" || name == "builtins";
  };
  return std::any_of(program.nodes.begin(), program.nodes.end(), [&](const graph::Node& node) {
    if (!node.live || node.apart) return false;
    if (node.overridden || node.wrapped) return true;
    PyObject* callable = node.callable.get();
    if (Py_IS_TYPE(callable, &PyMethodDescr_Type) || Py_IS_TYPE(callable, &PyWrapperDescr_Type) ||
        Py_IS_TYPE(callable, &_PyMethodWrapper_Type))
      return false;
    if (graph::callable_name(node.callable) == "grad") return true;  // tensor hooks run
    const SavedError outer;
    if (PyFunction_Check(callable))
      return !is_torchs(PyDict_GetItemString(PyFunction_GET_GLOBALS(callable), "__name__"));
    if (!PyCFunction_Check(callable)) return true;
    PyObject* self = PyCFunction_GET_SELF(callable);
    return self != nullptr && PyType_Check(self) &&
           strncmp(reinterpret_cast<PyTypeObject*>(self)->tp_name, "torch.", 6) != 0;
  });
}
// If numpy would warn: whether the call may start over eagerly, because no side effect has happened and no user code
// sees the error that is raised instead of the warning.
static bool may_start_over(const Entry& entry) {
  return may_run_twice(*entry.program) && !entry.draws && !calls_others(*entry.program);
}
struct NeedsRepeatable {};
// One graph holds both a failure that the program could observe and irreversible mutations.
struct NeedsSeparateSegments {};
// The call pops a torch-function mode of its caller.
struct NeedsModes {};
// The trace needs the value of a numpy scalar input.
struct NeedsNumpyConstants {};

struct TraceOptions {
  bool may_assume = true;
  bool has_modes = false;
  bool separate = false;  // observable failures and irreversible mutations go to separate segments
  bool may_break = true;
  bool numpy_constants = true;  // numpy scalars are constants, not inputs
  const std::unordered_set<std::string>* unspecialized = nullptr;
  std::optional<uint32_t> until{};  // a node: the trace stops there
};
static void set_up(trace::Tracer& tracer, const Chain& chain, graph::Recorder::Captured captured,
                   const TraceOptions& options) {
  graph::forget_warnings();
  trace::begin_separation(options.separate, chain, options.until);
  tracer.recorder.capture_unbacked(captured);
  tracer.may_assume = options.may_assume;
  tracer.has_modes = options.has_modes;
  if (options.unspecialized == nullptr) return;
  tracer.lifter.unspecialized->texts = options.unspecialized;
  tracer.lifter.unspecialized->on_lift = [&tracer] { tracer.recorder.expect_numbers(); };
}

// The order of construction: the residual program determines which tensors the graph returns; the recorder then knows
// which inputs the graph needs; their sources join the needed ones; last come the guards, which take over the tree of
// sources. Throws CannotRebuild.
static std::unique_ptr<Entry> build_entry(trace::Tracer& tracer, guards::AmbientGuard ambient,
                                          const TraceOptions& options, Borrowed result) {
  auto entry = std::make_unique<Entry>();
  std::vector<Borrowed> results;
  replay::Frames frames{{}, tracer.frames->ended_frames()};
  if (result) {
    results.push_back(result);
  } else {
    each_value(tracer.cut, [&](const Ref& value) { results.push_back(value); });
    for (const FrameState& state : tracer.cut) {
      entry->stop.push_back(shape_of(state));
      if (state.frame_object) frames.go_on.push_back(state.frame_object);
    }
  }
  for (const Ref& mode : tracer.exit_modes) results.push_back(mode);
  entry->has_modes = tracer.has_modes;
  entry->exit_popped = tracer.exit_popped;
  entry->exit_pushed = tracer.exit_modes.size();
  std::vector<Ref> outputs;
  for (const trace::Tracer::Assumption& assumption : tracer.assumptions) {
    outputs.push_back(assumption.tensor);
    entry->assumptions.push_back({assumption.wanted, assumption.code, assumption.index});
  }
  std::vector<lift::Source*> needed;
  entry->residual = replay::Residual::build(tracer.lifter, results, &outputs, &needed, tracer.raises, frames);
  if (tracer.arrays->leaves_with_array(outputs))
    throw replay::CannotRebuild("a tensor and an array with the same memory");
  Ref list = checked(PyList_New(static_cast<Py_ssize_t>(outputs.size())));
  for (size_t i = 0; i < outputs.size(); i++)
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), Py_NewRef(outputs[i].get()));
  entry->program = finish_recording(tracer.recorder, list);
  entry->output_count = PyList_GET_SIZE(list.get());
  if (entry->program->has_arrays && entry->program->shape_env && has_effects(*entry->program, graph::kMutates))
    throw replay::CannotRebuild("unbacked symbols next to a numpy array that is mutated");
  entry->warnings = graph::take_noted_warnings();
  entry->shows = !tracer.lifter.write_log->effects().empty();
  entry->transforms = has_effects(*entry->program, graph::kTransforms);
  entry->draws = has_effects(*entry->program, graph::kRandom);
  // A deferred string is no side effect. Deferred random values and hooks are.
  const bool only_strings = tracer.deferred->event && tracer.deferred->event->reason == report::Reason::tensor_text &&
                            tracer.lifter.write_log->effects().empty();
  const bool draws = !tracer.deferred->points.empty() && !only_strings;
  if (!entry->assumptions.empty() && (!may_run_twice(*entry->program) || draws)) throw NeedsRepeatable();
  if (options.may_break && trace::has_lasting_writes(*entry->program) &&
      trace::has_observed_failures(*entry->program)) {
    if (options.separate)
      throw replay::CannotRebuild("a call that may fail inside of a `try`, next to an irreversible mutation");
    throw NeedsSeparateSegments();
  }
  if (!(tracer.exit_state == entry->program->states[0])) entry->exit_state = tracer.exit_state;
  entry->exit_nesting = tracer.exit_nesting;
  entry->exit_casts = tracer.exit_casts;
  entry->clears_casts = tracer.clears_casts;

  for (uint32_t declared : entry->program->inputs) {
    lift::Source* source = tracer.tree->at(PyLong_AsUnsignedLong(entry->program->declared[declared].source.get()));
    size_t position = 0;
    while (position < needed.size() && needed[position] != source) position++;
    if (position == needed.size()) needed.push_back(source);
    entry->inputs.push_back(position);
    entry->input_sources.push_back(source);
  }
  const auto& inputs = entry->inputs;
  entry->side_by_side =
      !inputs.empty() && std::adjacent_find(inputs.begin(), inputs.end(),
                                            [](size_t one, size_t next) { return next != one + 1; }) == inputs.end();
  if (tracer.flag_groups != 0) ambient.add_flags(*tracer.flags_before, tracer.flag_groups);
  entry->guards = std::make_unique<guards::GuardProgram>(std::move(tracer.tree), needed, std::move(ambient));
  return entry;
}

// Hands the graph to the backend. False: what the trace had read has changed meanwhile.
static bool compile_entry(Entry& entry, const guards::Roots& roots, const Backend& backend, Borrowed code,
                          bool last_try) {
  std::vector<Ref> values;
  // Another thread may have mutated state meanwhile, or a module was imported late: an entry is valid only once its
  // guards hold.
  if (!entry.guards->check(roots, &values)) {
    if (last_try) throw InternalError("the guards of a new trace do not hold: " + entry.guards->failure(roots));
    return false;
  }
  // RNG state has to be saved and restored; that cost is paid only if a node may fail.
  const bool may_fail = entry.draws && std::ranges::any_of(entry.program->nodes, [&](const graph::Node& node) {
                          return node.live && trace::may_fail(*entry.program, node);
                        });
  // Saved-tensor hooks observe every run: there must be no discarded one.
  const bool saved_hooks_active = fake::has_saved_hooks();
  entry.repeatable = !saved_hooks_active && may_run_twice(*entry.program) &&
                     (!entry.draws || (may_fail && !entry.program->has_separate_segments()));
  entry.has_arrays = entry.program->has_arrays;
  entry.calls_others = entry.has_arrays && calls_others(*entry.program);
  // These hooks may raise anything, anywhere (checkpoint() stops its recomputation so): what the call had done until
  // then is known only if the recorded program runs, uncompiled.
  const bool as_recorded = saved_hooks_active && (entry.residual.acts() || trace::has_observed_nodes(*entry.program));
  if (!backend.callable || !entry.has_graph() || as_recorded) {
    entry.eager = std::make_unique<graph::Replay>(*entry.program);
    return true;
  }
  Ref examples = checked(PyList_New(static_cast<Py_ssize_t>(entry.inputs.size())));
  for (size_t i = 0; i < entry.inputs.size(); i++) {
    PyList_SET_ITEM(examples.get(), static_cast<Py_ssize_t>(i), Py_NewRef(values[entry.inputs[i]].get()));
  }
  std::optional<backend::WithoutModes> without_modes;
  if (entry.has_modes) without_modes.emplace();
  entry.grad_around = entry.program->grad_around();
  backend::Answer answer = backend::leaving_transforms(entry.transforms, [&] {
    const c10::AutoGradMode around(entry.grad_around);
    const fake::SavedHooksRest hooks_rest;
    return backend::hand_over(entry.program, backend.callable, examples, entry.input_sources, code);
  });
  if (answer.wants_numbers) throw NeedsNumpyConstants();
  if (answer.callable) {
    entry.compiled = std::move(answer.callable);
    entry.boxed = answer.boxed;
    entry.differentiates = differentiates(*entry.program);
    if (entry.differentiates) entry.eager = std::make_unique<graph::Replay>(*entry.program);
    if (has_effects(*entry.program, graph::kMutates | graph::kActs))
      entry.sharing = std::make_unique<backend::Sharing>(values, entry.inputs, entry.has_arrays);
  } else {
    entry.eager = std::make_unique<graph::Replay>(*entry.program);
  }
  Ref torchs = Ref::steal(PyObject_GetAttrString(backend.callable.get(), "is_torchs"));
  if (!torchs) PyErr_Clear();
  entry.is_torchs = torchs.get() == Py_True;
  if (answer.shares && entry.is_torchs)
    entry.sharing = std::make_unique<backend::Sharing>(values, entry.inputs, entry.has_arrays);
  if (entry.compiled && !entry.repeatable && !saved_hooks_active &&
      !has_effects(*entry.program, graph::kActs | graph::kTransforms) && !entry.program->has_separate_segments()) {
    Ref last = Ref::steal(PyObject_GetAttrString(backend.callable.get(), "writes_last"));
    if (!last) PyErr_Clear();
    entry.writes_last = last.get() == Py_True;
  }
  return true;
}

// These reasons are not tied to one instruction: breaking before it gains nothing.
static bool is_instruction_bound(report::Reason reason) {
  return reason != report::Reason::raises && reason != report::Reason::internal && reason != report::Reason::too_long &&
         reason != report::Reason::observed && reason != report::Reason::uninitialised;
}

// A signal handler raised: nothing was mutated, and the program's frames have not seen the exception.
static void raise_interrupt(trace::Tracer& tracer) {
  if (!tracer.interrupted) return;
  cpython::set_raised(std::move(tracer.interrupted));
  throw PyError();
}

// The innermost frame that waits for its callee through native code; -1: there is none. The frames around it cannot be
// resumed as they are either: further such frames are found when the trace is cut at this one.
static int waits_through_native_code(const Chain& chain) {
  for (size_t i = 0; i < chain.size(); i++) {
    if (chain[i].continuation == Continuation::kCannot) return static_cast<int>(i);
  }
  return -1;
}

// Whether all frames of the call are there: the unwinding exception may have been swallowed on its path.
static bool is_whole(const Chain& cut, const Chain& from) {
  return !cut.empty() && cut.back().code.get() == from.back().code.get();
}

// Retraces as far as the instruction that stopped the trace and cuts there, so nothing has to be undone. If that frame
// cannot be resumed there, its caller's instruction is executed concretely, and so on. Null: no such point.
static std::unique_ptr<Entry> stop_before(const Chain& chain, const std::vector<trace::BreakPoint>& points,
                                          graph::Recorder::Captured captured, const TraceOptions& options,
                                          Entry::Phases* phases) {
  for (size_t at = 0; at < points.size();) {
    const ThreadAsBefore thread;
    trace::OwnedTracer owned;
    trace::Tracer& tracer = *owned;
    guards::AmbientGuard ambient = guards::AmbientGuard::capture();
    set_up(tracer, chain, captured, options);
    Clock clock;
    (void)tracer.run(chain, &points[at]);
    raise_interrupt(tracer);
    phases->trace += clock.lap();
    if (!is_whole(tracer.cut, chain) || tracer.stopped) return nullptr;
    if (const int native = waits_through_native_code(tracer.cut); native >= 0) {
      at += std::max(native, 1);
      continue;
    }
    try {
      std::unique_ptr<Entry> entry = build_entry(tracer, std::move(ambient), options, {});
      phases->install += clock.lap();
      return entry;
    } catch (const replay::CannotRebuild&) {
      at++;
    }
  }
  return nullptr;
}

// A capture setting of ours, or of TorchDynamo if that is loaded.
static bool is_set(const char* setting) {
  for (const char* name : {"alternator.config", "torch._dynamo.config"}) {
    Borrowed config = PyDict_GetItemString(PyImport_GetModuleDict(), name);
    if (!config) continue;
    Ref wanted = Ref::steal(PyObject_GetAttrString(config.get(), setting));
    if (!wanted) PyErr_Clear();
    if (wanted && truth(wanted).value()) return true;
  }
  return false;
}

static std::unique_ptr<Entry> trace_once(const Chain& chain, const guards::Roots& roots, const Backend& backend,
                                         bool may_break, const TraceOptions& options, bool last_try) {
  std::unique_ptr<Entry> entry;
  Entry::Phases phases;
  const graph::Recorder::Captured captured{.scalars = !may_break || is_set("capture_scalar_outputs"),
                                           .sizes = !may_break || is_set("capture_dynamic_output_shape_ops")};
  {
    const WithoutCollector until_the_trace_is_gone;  // nearly all garbage dies with the trace
    const at::RecordFunctionGuard unseen(false);     // profilers must not see operators on fake tensors
    const lift::NumpyScalarInputs handed(!options.numpy_constants);
    const ThreadAsBefore thread;
    trace::OwnedTracer owned;
    trace::Tracer& tracer = *owned;
    guards::AmbientGuard ambient = guards::AmbientGuard::capture();
    tracer.may_break = may_break;
    set_up(tracer, chain, captured, options);
    Clock clock;
    Ref result = tracer.run(chain, nullptr);
    raise_interrupt(tracer);
    phases.trace += clock.lap();
    if (!result && tracer.wants_modes) throw NeedsModes();
    if (handed.any() && (!result || tracer.raises)) throw NeedsNumpyConstants();
    if (result) {
      tracer.keep_alive.push_back(Ref(result));
      try {
        entry = build_entry(tracer, std::move(ambient), options, result);
        phases.install += clock.lap();
        if (handed.any() && !may_start_over(*entry)) throw NeedsNumpyConstants();
      } catch (const NeedsRepeatable&) {
        if (handed.any()) throw NeedsNumpyConstants();
        throw;
      } catch (const NeedsSeparateSegments&) {
        if (handed.any()) throw NeedsNumpyConstants();
        throw;
      } catch (const replay::CannotRebuild& error) {
        if (handed.any()) throw NeedsNumpyConstants();
        // If a deferred random value leaves the call, the trace can be cut before the value is drawn.
        if (may_break) entry = stop_before(chain, tracer.deferred->points, captured, options, &phases);
        if (entry == nullptr)
          return give_up(tracer, std::move(ambient), phases, {report::Reason::cannot_rebuild, error.what(), {}, 0});
        entry->stops_because = tracer.deferred->event;
      }
    } else {
      const bool is_break = is_instruction_bound(tracer.stopped->reason);
      if (is_break && tracer.refuses) {
        entry = give_up(tracer, std::move(ambient), phases, *tracer.stopped);
        entry->refuses = true;
        return entry;
      }
      // A callee that asks to be skipped runs eagerly, called from its caller's instruction.
      if (tracer.stopped->reason == report::Reason::skipped && !tracer.break_points.empty())
        tracer.break_points.erase(tracer.break_points.begin());
      if (may_break && is_break) entry = stop_before(chain, tracer.break_points, captured, options, &phases);
      // A frame may hold a deferred random value.
      if (may_break && is_break && entry == nullptr)
        entry = stop_before(chain, tracer.deferred->points, captured, options, &phases);
      if (entry == nullptr) return give_up(tracer, std::move(ambient), phases, *tracer.stopped);
      entry->stops_because = *tracer.stopped;
    }
  }
  entry->phases = phases;
  entry->traced_with = {options.may_assume, options.separate, captured.scalars, captured.sizes, nullptr};
  if (options.unspecialized != nullptr)
    entry->traced_with.unspecialized = std::make_shared<const std::unordered_set<std::string>>(*options.unspecialized);
  const bool holds = compile_entry(*entry, roots, backend, chain.back().code, last_try);
  entry->program->modules.clear();  // an export names them; an entry must not keep them alive
  return holds ? std::move(entry) : nullptr;
}

// Torch compilers have no numpy scalar inputs, and make faster code of constants.
static bool takes_numbers(const Backend& backend) {
  if (!backend.callable) return true;
  Ref takes = Ref::steal(PyObject_GetAttrString(backend.callable.get(), "takes_numbers"));
  if (!takes) PyErr_Clear();
  return takes.get() == Py_True;
}

std::unique_ptr<Entry> trace_entry(const Chain& chain, const guards::Roots& roots, const Backend& backend,
                                   bool may_break, bool last_try, const std::unordered_set<std::string>* unspecialized,
                                   bool* numpy_constants) {
  if (!*numpy_constants && !takes_numbers(backend)) *numpy_constants = true;
  for (TraceOptions options{.may_assume = !fake::has_saved_hooks(),
                            .may_break = may_break,
                            .numpy_constants = *numpy_constants,
                            .unspecialized = unspecialized};
       ;) {
    try {
      return trace_once(chain, roots, backend, may_break, options, last_try);
    } catch (const NeedsRepeatable&) {
      options.may_assume = false;
    } catch (const NeedsSeparateSegments&) {
      options.separate = true;
    } catch (const NeedsModes&) {
      options.has_modes = true;
    } catch (const NeedsNumpyConstants&) {
      options.numpy_constants = *numpy_constants = true;
    }
  }
}

// --- a graph that failed ----------------------------------------------------------------------------------------

// How a call whose graph failed continues.
enum class Recovery : uint8_t {
  kRaise,      // the instruction raises
  kRaiseOnly,  // ... and no variable of its frames is observable
  kRetry,      // the instruction is executed again, concretely
};

// Retraces as far as a point on the path to the node that failed, and cuts there: what the graph has computed so far
// replaces a run of that part.
static Recovered cut_at(const Chain& chain, const Entry& failed, graph::Failure& failure,
                        const trace::BreakPoint& point, Recovery recovery, graph::Recorder::Captured captured,
                        const TraceOptions& options) {
  trace::OwnedTracer owned;
  trace::Tracer& tracer = *owned;
  guards::AmbientGuard ambient = guards::AmbientGuard::capture();
  set_up(tracer, chain, captured, options);
  (void)tracer.run(chain, &point);
  raise_interrupt(tracer);
  const graph::Program& program = *failed.program;
  const graph::Program& part = tracer.recorder.program();
  if (!is_whole(tracer.cut, chain) || tracer.stopped || waits_through_native_code(tracer.cut) >= 0 ||
      !has_prefix(program, part, failure.node))
    return {};
  if (recovery == Recovery::kRetry) {
    if (!may_repeat(program, part.nodes.size(), failure.node)) return {};
  } else {
    if (!is_at_node(tracer.cut, program, program.nodes[failure.node])) return {};
    drop_variables(tracer.cut, part, failure, recovery == Recovery::kRaiseOnly);
  }
  try {
    Recovered left{build_entry(tracer, std::move(ambient), options, {}), {}, recovery != Recovery::kRetry};
    if (take_outputs(program, *left.entry->program, &failure, &left.outputs)) return left;
  } catch (const replay::CannotRebuild&) {
  }
  return {};
}

// Retracing finds the same path to the node, since the guards still hold: no Python side effect of the call has
// happened yet.
Recovered retrace_failure(const Chain& chain, const Entry& failed, graph::Failure& failure) {
  if (failed.transforms || failure.node >= failed.program->nodes.size()) return {};
  const graph::Recorder::Captured captured{.scalars = failed.traced_with.scalars, .sizes = failed.traced_with.sizes};
  TraceOptions options{.may_assume = failed.traced_with.may_assume,
                       .has_modes = failed.has_modes,
                       .separate = failed.traced_with.separate,
                       .may_break = false,
                       .unspecialized = failed.traced_with.unspecialized.get(),
                       .until = failure.node};
  const WithoutCollector until_the_trace_is_gone;
  const at::RecordFunctionGuard unseen(false);
  std::vector<trace::BreakPoint> points;
  {
    trace::OwnedTracer owned;
    trace::Tracer& tracer = *owned;
    set_up(tracer, chain, captured, options);
    (void)tracer.run(chain, nullptr);
    raise_interrupt(tracer);
    if (!tracer.stopped || tracer.break_points.empty()) return {};
    points = std::move(tracer.break_points);
  }
  options.until.reset();
  for (const Recovery recovery : {Recovery::kRaise, Recovery::kRaiseOnly}) {
    Recovered left = cut_at(chain, failed, failure, points.front(), recovery, captured, options);
    if (left.entry != nullptr) return left;
  }
  if (fake::has_saved_hooks()) return {};  // the hooks would observe a tensor twice
  for (const trace::BreakPoint& point : points) {
    Recovered left = cut_at(chain, failed, failure, point, Recovery::kRetry, captured, options);
    if (left.entry != nullptr) return left;
  }
  return {};
}

}  // namespace alternator::dispatch
