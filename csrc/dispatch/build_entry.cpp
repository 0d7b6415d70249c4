// From a stopped chain of frames to an entry.
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
#include "py/gc.h"
#include "trace/core/tracer.h"
#include "trace/soundness/observable_failures.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace alternator::dispatch {

namespace {

// What dies with a trace may be a guard of torch's that was not left: what it puts back is put back here.
class ThreadAsBefore {
 public:
  ThreadAsBefore() = default;
  ~ThreadAsBefore() { before_.restore(); }
  ThreadAsBefore(const ThreadAsBefore&) = delete;
  ThreadAsBefore& operator=(const ThreadAsBefore&) = delete;

 private:
  const fake::TransformsAsBefore before_;
};

// Seconds since it was made, or since the last lap.
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

// A result that came into being unseen (code that switches torch functions off makes such) is nothing to return.
static auto finish_recording(graph::Recorder& recorder, Borrowed outputs) {
  try {
    return recorder.finish(outputs, graph::Unused::kStay);
  } catch (const PyError&) {
    if (!PyErr_ExceptionMatches(graph::record_error_class().get())) throw;
    PyErr_Clear();
    throw replay::CannotRebuild("a tensor that torch has made unseen");
  }
}

// What is run again where the data is not as assumed must have left nothing behind.
static bool may_run_twice(const graph::Program& program) {
  return !has_effects(program, graph::kActs | graph::kTransforms) && !program.may_write_to_inputs() &&
         !(program.has_arrays && has_effects(program, graph::kMutates));
}

// Code of the program's own, or of a library: in a custom operator, an autograd function, a tensor of a subclass.
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
    if (graph::callable_name(node.callable) == "grad") return true;  // hooks
    const SavedError outer;
    if (PyFunction_Check(callable))
      return !is_torchs(PyDict_GetItemString(PyFunction_GET_GLOBALS(callable), "__name__"));
    if (!PyCFunction_Check(callable)) return true;
    PyObject* self = PyCFunction_GET_SELF(callable);
    return self != nullptr && PyType_Check(self) &&
           strncmp(reinterpret_cast<PyTypeObject*>(self)->tp_name, "torch.", 6) != 0;
  });
}
// Where numpy would warn, nothing has happened yet, and nobody else sees what is raised instead.
static bool may_begin_again(const Entry& entry) {
  return may_run_twice(*entry.program) && !entry.draws && !calls_others(*entry.program);
}
struct NotRepeatable {};
// A failure that the program would see, and writes that cannot be taken back, stand in one graph.
struct NotSeparate {};
// The call takes off a mode of its caller's.
struct WantsModes {};
// Something needs to know a number of numpy's that is handed over.
struct WantsNumbers {};

struct TraceOptions {
  bool may_assume = true;
  bool has_modes = false;
  bool separate = false;  // failures that the program sees, and writes for good
  bool may_break = true;
  bool knows_numpy = true;  // the numbers of its that are handed over
  const std::unordered_set<std::string>* unspecialized = nullptr;
  std::optional<uint32_t> until{};  // a node
};
static void set_up(trace::Tracer& tracer, const Chain& chain, graph::Recorder::Captured captured,
                   const TraceOptions& options) {
  graph::forget_warnings();
  trace::begin_separation(options.separate, chain, options.until);
  tracer.recorder.capture_unbacked(captured);
  tracer.may_assume = options.may_assume;
  tracer.has_modes = options.has_modes;
  if (options.unspecialized == nullptr) return;
  tracer.lifter.unspecialized = options.unspecialized;
  tracer.lifter.on_unspecialized = [&tracer] { tracer.recorder.expect_numbers(); };
}

// The order in which a trace's parts are made: the residual says which tensors the graph returns; the recorder then
// knows which inputs it needs; their sources join the needed ones; last come the guards, which take the tree of
// sources. Throws CannotRebuild.
static std::unique_ptr<Entry> build_entry(trace::Tracer& tracer, guards::AmbientGuard ambient,
                                          const TraceOptions& options, Borrowed result) {
  auto entry = std::make_unique<Entry>();
  std::vector<Borrowed> results;
  replay::Frames frames{{}, tracer.ended_frames()};
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
  if (tracer.leaves_with_array(outputs)) throw replay::CannotRebuild("a tensor and an array with the same memory");
  Ref list = checked(PyList_New(static_cast<Py_ssize_t>(outputs.size())));
  for (size_t i = 0; i < outputs.size(); i++)
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), Py_NewRef(outputs[i].get()));
  entry->program = finish_recording(tracer.recorder, list);
  entry->output_count = PyList_GET_SIZE(list.get());
  if (entry->program->has_arrays && entry->program->shape_env && has_effects(*entry->program, graph::kMutates))
    throw replay::CannotRebuild("numbers that only a run knows, next to an array whose memory is written");
  entry->warnings = graph::take_noted_warnings();
  entry->shows = !tracer.lifter.effects().empty();
  entry->transforms = has_effects(*entry->program, graph::kTransforms);
  entry->draws = has_effects(*entry->program, graph::kRandom);
  // A text that nobody knows is nothing that happens. Numbers that are drawn, and hooks, are effects.
  const bool only_texts = tracer.deferred_event() && tracer.deferred_event()->reason == report::Reason::tensor_text &&
                          tracer.lifter.effects().empty();
  const bool draws = !tracer.deferred_points().empty() && !only_texts;
  if (!entry->assumptions.empty() && (!may_run_twice(*entry->program) || draws)) throw NotRepeatable();
  if (options.may_break && trace::has_lasting_writes(*entry->program) &&
      trace::has_observed_failures(*entry->program)) {
    if (options.separate)
      throw replay::CannotRebuild("what may fail inside of a `try`, next to what is written for good");
    throw NotSeparate();
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

// Hands the graph to the backend. False: what the trace had read changed meanwhile.
static bool compile_entry(Entry& entry, const guards::Roots& roots, const Backend& backend, Borrowed code,
                          bool last_try) {
  std::vector<Ref> values;
  // Another thread may have written meanwhile, or a module was loaded late: an entry is believed only after its guards
  // hold.
  if (!entry.guards->check(roots, &values)) {
    if (last_try) throw InternalError("the guards of a new trace do not hold: " + entry.guards->failure(roots));
    return false;
  }
  // Random numbers are put back; what that costs is spent only where something may fail.
  const bool may_fail = entry.draws && std::ranges::any_of(entry.program->nodes, [&](const graph::Node& node) {
                          return node.live && trace::may_fail(*entry.program, node);
                        });
  // Hooks on saved tensors see every run: none is made in vain.
  const bool is_watched = fake::has_saved_hooks();
  entry.repeatable = !is_watched && may_run_twice(*entry.program) &&
                     (!entry.draws || (may_fail && !entry.program->has_separate_segments()));
  entry.has_arrays = entry.program->has_arrays;
  entry.calls_others = entry.has_arrays && calls_others(*entry.program);
  // They may raise anything, anywhere (checkpoint() stops a second run so): what the call had done until then is known
  // only where the recorded program itself runs.
  const bool as_recorded = is_watched && (entry.residual.acts() || trace::has_observed_nodes(*entry.program));
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
  if (answer.wants_numbers) throw WantsNumbers();
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
  if (entry.compiled && !entry.repeatable && !is_watched &&
      !has_effects(*entry.program, graph::kActs | graph::kTransforms) && !entry.program->has_separate_segments()) {
    Ref last = Ref::steal(PyObject_GetAttrString(backend.callable.get(), "writes_last"));
    if (!last) PyErr_Clear();
    entry.writes_last = last.get() == Py_True;
  }
  return true;
}

// Nothing is gained by stopping before what is no instruction's fault.
static bool has_place(report::Reason reason) {
  return reason != report::Reason::raises && reason != report::Reason::internal && reason != report::Reason::too_long &&
         reason != report::Reason::observed && reason != report::Reason::uninitialised;
}

// By a signal: nothing was written, and nothing of it belongs to the program.
static void raise_interrupt(trace::Tracer& tracer) {
  if (!tracer.interrupted) return;
  cpython::set_raised(std::move(tracer.interrupted));
  throw PyError();
}

// The innermost frame that waits for another one through native code; -1: there is none. All frames around it cannot be
// continued either, as they are: whether there is another one among them is seen when the trace is cut at this one.
static int waits_through_native_code(const Chain& chain) {
  for (size_t i = 0; i < chain.size(); i++) {
    if (chain[i].continuation == Continuation::kCannot) return static_cast<int>(i);
  }
  return -1;
}

// Whether all frames of the call are there: somebody may have dropped the unwinding on its way out.
static bool is_whole(const Chain& cut, const Chain& from) {
  return !cut.empty() && cut.back().code.get() == from.back().code.get();
}

// The trace is run once more, as far as the instruction that stopped it, and cut there: nothing has to be undone. Where
// that frame cannot be left as it is, its caller's instruction is executed for real, and so on. Null: nowhere.
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

// What is to be captured also where breaks are allowed: a setting of ours, or of TorchDynamo if that is loaded.
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
    const WithoutCollector until_the_trace_is_gone;  // nearly all that it made goes with it
    const at::RecordFunctionGuard unseen(false);     // a profiler has no use for operators on fakes
    const lift::NumpyScalarInputs handed(!options.knows_numpy);
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
    if (!result && tracer.wants_modes) throw WantsModes();
    if (handed.any() && (!result || tracer.raises)) throw WantsNumbers();
    if (result) {
      tracer.keep_alive.push_back(Ref(result));
      try {
        entry = build_entry(tracer, std::move(ambient), options, result);
        phases.install += clock.lap();
        if (handed.any() && !may_begin_again(*entry)) throw WantsNumbers();
      } catch (const NotRepeatable&) {
        if (handed.any()) throw WantsNumbers();
        throw;
      } catch (const NotSeparate&) {
        if (handed.any()) throw WantsNumbers();
        throw;
      } catch (const replay::CannotRebuild& error) {
        if (handed.any()) throw WantsNumbers();
        // Where it is a random number that leaves the call, the trace can be cut before that is drawn.
        if (may_break) entry = stop_before(chain, tracer.deferred_points(), captured, options, &phases);
        if (entry == nullptr)
          return give_up(tracer, std::move(ambient), phases, {report::Reason::cannot_rebuild, error.what(), {}, 0});
        entry->stops_because = tracer.deferred_event();
      }
    } else {
      const bool is_break = has_place(tracer.stopped->reason);
      if (is_break && tracer.refuses) {
        entry = give_up(tracer, std::move(ambient), phases, *tracer.stopped);
        entry->refuses = true;
        return entry;
      }
      // What asks to run as it is does so from where it was called.
      if (tracer.stopped->reason == report::Reason::skipped && !tracer.break_points.empty())
        tracer.break_points.erase(tracer.break_points.begin());
      if (may_break && is_break) entry = stop_before(chain, tracer.break_points, captured, options, &phases);
      // A frame may hold a random number that nobody knows.
      if (may_break && is_break && entry == nullptr)
        entry = stop_before(chain, tracer.deferred_points(), captured, options, &phases);
      if (entry == nullptr) return give_up(tracer, std::move(ambient), phases, *tracer.stopped);
      entry->stops_because = *tracer.stopped;
    }
  }
  entry->phases = phases;
  entry->manner = {options.may_assume, options.separate, captured.scalars, captured.sizes, nullptr};
  if (options.unspecialized != nullptr)
    entry->manner.unspecialized = std::make_shared<const std::unordered_set<std::string>>(*options.unspecialized);
  const bool holds = compile_entry(*entry, roots, backend, chain.back().code, last_try);
  entry->program->modules.clear();  // an export names them; an entry keeps none alive
  return holds ? std::move(entry) : nullptr;
}

// A compiler has no inputs that are numbers of numpy's, and makes faster code of constants.
static bool takes_numbers(const Backend& backend) {
  if (!backend.callable) return true;
  Ref takes = Ref::steal(PyObject_GetAttrString(backend.callable.get(), "takes_numbers"));
  if (!takes) PyErr_Clear();
  return takes.get() == Py_True;
}

std::unique_ptr<Entry> trace_entry(const Chain& chain, const guards::Roots& roots, const Backend& backend,
                                   bool may_break, bool last_try, const std::unordered_set<std::string>* unspecialized,
                                   bool* knows_numpy) {
  if (!*knows_numpy && !takes_numbers(backend)) *knows_numpy = true;
  for (TraceOptions options{.may_assume = !fake::has_saved_hooks(),
                            .may_break = may_break,
                            .knows_numpy = *knows_numpy,
                            .unspecialized = unspecialized};
       ;) {
    try {
      return trace_once(chain, roots, backend, may_break, options, last_try);
    } catch (const NotRepeatable&) {
      options.may_assume = false;
    } catch (const NotSeparate&) {
      options.separate = true;
    } catch (const WantsModes&) {
      options.has_modes = true;
    } catch (const WantsNumbers&) {
      options.knows_numpy = *knows_numpy = true;
    }
  }
}

// --- a graph that failed ----------------------------------------------------------------------------------------

// How a call that has failed leaves what it was in.
enum class Leaving : uint8_t {
  kRaise,      // the instruction has raised
  kRaiseOnly,  // ... and nobody looks at the variables of its frames
  kAgain,      // the instruction is executed again, for real
};

// The trace is run once more as far as a point on the way to the node that failed, and cut there: what the graph has
// computed so far stands for a run of the part.
static Left cut_failed(const Chain& chain, const Entry& failed, graph::Failure& failure, const trace::BreakPoint& point,
                       Leaving leaving, graph::Recorder::Captured captured, const TraceOptions& options) {
  trace::OwnedTracer owned;
  trace::Tracer& tracer = *owned;
  guards::AmbientGuard ambient = guards::AmbientGuard::capture();
  set_up(tracer, chain, captured, options);
  (void)tracer.run(chain, &point);
  raise_interrupt(tracer);
  const graph::Program& program = *failed.program;
  const graph::Program& part = tracer.recorder.program();
  if (!is_whole(tracer.cut, chain) || tracer.stopped || waits_through_native_code(tracer.cut) >= 0 ||
      !begins_like(program, part, failure.node))
    return {};
  if (leaving == Leaving::kAgain) {
    if (!may_repeat(program, part.nodes.size(), failure.node)) return {};
  } else {
    if (!stands_at(tracer.cut, program, program.nodes[failure.node])) return {};
    drop_variables(tracer.cut, part, failure, leaving == Leaving::kRaiseOnly);
  }
  try {
    Left left{build_entry(tracer, std::move(ambient), options, {}), {}, leaving != Leaving::kAgain};
    if (take_outputs(program, *left.entry->program, &failure, &left.outputs)) return left;
  } catch (const replay::CannotRebuild&) {
  }
  return {};
}

// The way to the node is found again, since the guards still hold: nothing of what the call does in Python has been
// done yet.
Left trace_failure(const Chain& chain, const Entry& failed, graph::Failure& failure) {
  if (failed.transforms || failure.node >= failed.program->nodes.size()) return {};
  const graph::Recorder::Captured captured{.scalars = failed.manner.scalars, .sizes = failed.manner.sizes};
  TraceOptions options{.may_assume = failed.manner.may_assume,
                       .has_modes = failed.has_modes,
                       .separate = failed.manner.separate,
                       .may_break = false,
                       .unspecialized = failed.manner.unspecialized.get(),
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
  for (const Leaving leaving : {Leaving::kRaise, Leaving::kRaiseOnly}) {
    Left left = cut_failed(chain, failed, failure, points.front(), leaving, captured, options);
    if (left.entry != nullptr) return left;
  }
  if (fake::has_saved_hooks()) return {};  // they would see it twice
  for (const trace::BreakPoint& point : points) {
    Left left = cut_failed(chain, failed, failure, point, Leaving::kAgain, captured, options);
    if (left.entry != nullptr) return left;
  }
  return {};
}

}  // namespace alternator::dispatch
