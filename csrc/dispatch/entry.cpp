#include "dispatch/entry.h"

#include "dispatch/failed.h"
#include "dispatch/handoff.h"
#include "fake/python_tensor.h"
#include "fake/transforms.h"
#include "graph/effects.h"
#include "graph/errors.h"
#include "lift/handed_numbers.h"
#include "py/gc.h"
#include "trace/failures.h"
#include "trace/stopped.h"
#include "trace/thread_state.h"
#include "trace/tracer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/variable.h>

#include <chrono>
#include <cstring>
#include <exception>

namespace alternator::dispatch {

using at::impl::PythonTorchFunctionTLS;

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

// A backend's graph knows nothing of those.
static bool has_hooks(const std::vector<Ref>& values, const std::vector<size_t>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [&](size_t position) {
    if (!graph::is_tensor(values[position])) return false;
    const at::Tensor& tensor = fake::unpack(values[position].get());
    const torch::autograd::AutogradMeta* meta = torch::autograd::impl::get_autograd_meta(tensor);
    return meta != nullptr && (!meta->hooks_.empty() || meta->retains_grad_);
  });
}

// Where a graph fails inside of a transform, that is left as in eager.
template <class Run>
static auto leaving_transforms(bool transforms, Run&& run) {
  if (!transforms) return run();
  const fake::TransformsAsBefore before;
  try {
    return run();
  } catch (const PyError&) {
    const SavedError on_its_way;
    before.restore();
    throw;
  }
}

// No torch-function modes while it lives.
class WithoutModes {
 public:
  WithoutModes() : before_(PythonTorchFunctionTLS::get_state()) {
    while (PythonTorchFunctionTLS::stack_len() > 0) PythonTorchFunctionTLS::pop_stack();
  }
  ~WithoutModes() { PythonTorchFunctionTLS::set_state(before_); }
  WithoutModes(const WithoutModes&) = delete;
  WithoutModes& operator=(const WithoutModes&) = delete;

 private:
  PythonTorchFunctionTLS before_;
};

Entry::Entry() = default;
Entry::~Entry() = default;

bool Entry::admits(const guards::Roots& roots, std::vector<Ref>* values) const {
  return guards->check(roots, values) && (sharing == nullptr || sharing->holds(*values, inputs));
}

Ref Entry::guard_texts() const {
  Ref texts = checked(PyList_New(0));
  for (const std::string& text : guards->texts())
    check_status(PyList_Append(texts.get(), checked(PyUnicode_FromString(text.c_str())).get()));
  for (const Assumption& assumption : assumptions) {
    auto* code = assumption.code.as<PyCodeObject>();
    const int line = PyCode_Addr2Line(code, assumption.index * static_cast<int>(sizeof(_Py_CODEUNIT)));
    Ref text = checked(PyUnicode_FromFormat("the data of the call, after it: the check at %U:%d does not raise",
                                            code->co_filename, line));
    check_status(PyList_Append(texts.get(), text.get()));
  }
  return texts;
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

struct Wishes {
  bool may_assume = true;
  bool has_modes = false;
  bool separate = false;  // failures that the program sees, and writes for good
  bool may_break = true;
  bool knows_numpy = true;  // the numbers of its that are handed over
  const std::unordered_set<std::string>* changing = nullptr;
  std::optional<uint32_t> until{};  // a node
};
static void set_up(trace::Tracer& tracer, const Chain& chain, graph::Recorder::Captured captured,
                   const Wishes& wishes) {
  graph::forget_warnings();
  trace::begin_separation(wishes.separate, chain, wishes.until);
  tracer.recorder.capture_unknown(captured);
  tracer.may_assume = wishes.may_assume;
  tracer.has_modes = wishes.has_modes;
  if (wishes.changing == nullptr) return;
  tracer.lifter.changing = wishes.changing;
  tracer.lifter.on_changing = [&tracer] { tracer.recorder.expect_numbers(); };
}

// The order in which a trace's parts are made: the residual says which tensors the graph returns; the recorder then
// knows which inputs it needs; their sources join the needed ones; last come the guards, which take the tree of
// sources. Throws CannotRebuild.
static std::unique_ptr<Entry> build_entry(trace::Tracer& tracer, guards::AmbientGuard ambient, const Wishes& wishes,
                                          Borrowed result) {
  auto entry = std::make_unique<Entry>();
  std::vector<Borrowed> results;
  replay::Frames frames{{}, tracer.ended_frames()};
  if (result) {
    results.push_back(result);
  } else {
    trace::each_value(tracer.cut, [&](const Ref& value) { results.push_back(value); });
    for (const FrameState& state : tracer.cut) {
      entry->stop.push_back(trace::shape_of(state));
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
  entry->transforms = has_effects(*entry->program, graph::kTransforms);
  entry->draws = has_effects(*entry->program, graph::kRandom);
  if (!entry->assumptions.empty() && (!may_run_twice(*entry->program) || !tracer.draw_points().empty()))
    throw NotRepeatable();
  if (wishes.may_break && trace::has_lasting_writes(*entry->program) && trace::has_observed_failures(*entry->program)) {
    if (wishes.separate)
      throw replay::CannotRebuild("what may fail inside of a `try`, next to what is written for good");
    throw NotSeparate();
  }
  if (!(tracer.exit_state == entry->program->states[0])) entry->exit_state = tracer.exit_state;
  entry->exit_nesting = tracer.exit_nesting;

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
  entry.repeatable = may_run_twice(*entry.program) && (!entry.draws || (may_fail && !entry.program->has_apart()));
  entry.has_arrays = entry.program->has_arrays;
  entry.calls_others = entry.has_arrays && calls_others(*entry.program);
  if (!backend.callable || !entry.has_graph()) {
    entry.eager = std::make_unique<graph::Replay>(*entry.program);
    return true;
  }
  Ref examples = checked(PyList_New(static_cast<Py_ssize_t>(entry.inputs.size())));
  for (size_t i = 0; i < entry.inputs.size(); i++) {
    PyList_SET_ITEM(examples.get(), static_cast<Py_ssize_t>(i), Py_NewRef(values[entry.inputs[i]].get()));
  }
  std::optional<WithoutModes> without_modes;
  if (entry.has_modes) without_modes.emplace();
  Answer answer = leaving_transforms(entry.transforms, [&] {
    return hand_over(entry.program, backend.callable, examples, entry.input_sources, code);
  });
  if (answer.wants_numbers) throw WantsNumbers();
  if (answer.callable) {
    entry.compiled = std::move(answer.callable);
    entry.boxed = answer.boxed;
    entry.differentiates = differentiates(*entry.program);
    if (entry.differentiates) entry.eager = std::make_unique<graph::Replay>(*entry.program);
    if (has_effects(*entry.program, graph::kMutates | graph::kActs))
      entry.sharing = std::make_unique<Sharing>(values, entry.inputs, entry.has_arrays);
  } else {
    entry.eager = std::make_unique<graph::Replay>(*entry.program);
  }
  Ref torchs = Ref::steal(PyObject_GetAttrString(backend.callable.get(), "is_torchs"));
  if (!torchs) PyErr_Clear();
  entry.is_torchs = torchs.get() == Py_True;
  if (entry.compiled && !entry.repeatable && !has_effects(*entry.program, graph::kActs | graph::kTransforms) &&
      !entry.program->has_apart()) {
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
    if (chain[i].joint == Joint::kCannot) return static_cast<int>(i);
  }
  return -1;
}

// The trace is run once more, as far as the instruction that stopped it, and cut there: nothing has to be undone. Where
// that frame cannot be left as it is, its caller's instruction is executed for real, and so on. Null: nowhere.
static std::unique_ptr<Entry> stop_before(const Chain& chain, const std::vector<trace::BreakPoint>& points,
                                          graph::Recorder::Captured captured, const Wishes& wishes,
                                          Entry::Phases* phases) {
  for (size_t at = 0; at < points.size();) {
    const ThreadAsBefore thread;
    trace::OwnedTracer owned;
    trace::Tracer& tracer = *owned;
    guards::AmbientGuard ambient = guards::AmbientGuard::capture();
    set_up(tracer, chain, captured, wishes);
    Clock clock;
    (void)tracer.run(chain, &points[at]);
    raise_interrupt(tracer);
    phases->trace += clock.lap();
    if (tracer.cut.empty() || tracer.stopped) return nullptr;
    if (const int native = waits_through_native_code(tracer.cut); native >= 0) {
      at += std::max(native, 1);
      continue;
    }
    try {
      std::unique_ptr<Entry> entry = build_entry(tracer, std::move(ambient), wishes, {});
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
                                         bool may_break, const Wishes& wishes, bool last_try) {
  std::unique_ptr<Entry> entry;
  Entry::Phases phases;
  const graph::Recorder::Captured captured{.scalars = !may_break || is_set("capture_scalar_outputs"),
                                           .sizes = !may_break || is_set("capture_dynamic_output_shape_ops")};
  {
    const WithoutCollector until_the_trace_is_gone;  // nearly all that it made goes with it
    const at::RecordFunctionGuard unseen(false);     // a profiler has no use for operators on fakes
    const lift::HandedNumbers handed(!wishes.knows_numpy);
    const ThreadAsBefore thread;
    trace::OwnedTracer owned;
    trace::Tracer& tracer = *owned;
    guards::AmbientGuard ambient = guards::AmbientGuard::capture();
    tracer.may_break = may_break;
    set_up(tracer, chain, captured, wishes);
    Clock clock;
    Ref result = tracer.run(chain, nullptr);
    raise_interrupt(tracer);
    phases.trace += clock.lap();
    if (!result && tracer.wants_modes) throw WantsModes();
    if (handed.any() && (!result || tracer.raises)) throw WantsNumbers();
    if (result) {
      tracer.keep_alive.push_back(Ref(result));
      try {
        entry = build_entry(tracer, std::move(ambient), wishes, result);
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
        if (may_break) entry = stop_before(chain, tracer.draw_points(), captured, wishes, &phases);
        if (entry == nullptr)
          return give_up(tracer, std::move(ambient), phases, {report::Reason::cannot_rebuild, error.what(), {}, 0});
        entry->stops_because = tracer.draw_event();
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
      if (may_break && is_break) entry = stop_before(chain, tracer.break_points, captured, wishes, &phases);
      // A frame may hold a random number that nobody knows.
      if (may_break && is_break && entry == nullptr)
        entry = stop_before(chain, tracer.draw_points(), captured, wishes, &phases);
      if (entry == nullptr) return give_up(tracer, std::move(ambient), phases, *tracer.stopped);
      entry->stops_because = *tracer.stopped;
    }
  }
  entry->phases = phases;
  entry->manner = {wishes.may_assume, wishes.separate, captured.scalars, captured.sizes, nullptr};
  if (wishes.changing != nullptr)
    entry->manner.changing = std::make_shared<const std::unordered_set<std::string>>(*wishes.changing);
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
                                   bool may_break, bool last_try, const std::unordered_set<std::string>* changing,
                                   bool* knows_numpy) {
  if (!*knows_numpy && !takes_numbers(backend)) *knows_numpy = true;
  for (Wishes wishes{.may_break = may_break, .knows_numpy = *knows_numpy, .changing = changing};;) {
    try {
      return trace_once(chain, roots, backend, may_break, wishes, last_try);
    } catch (const NotRepeatable&) {
      wishes.may_assume = false;
    } catch (const NotSeparate&) {
      wishes.separate = true;
    } catch (const WantsModes&) {
      wishes.has_modes = true;
    } catch (const WantsNumbers&) {
      wishes.knows_numpy = *knows_numpy = true;
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
static Left cut_failed(const Chain& chain, const Entry& failed, graph::Failure& failure,
                       const trace::BreakPoint& point, Leaving leaving, graph::Recorder::Captured captured,
                       const Wishes& wishes) {
  trace::OwnedTracer owned;
  trace::Tracer& tracer = *owned;
  guards::AmbientGuard ambient = guards::AmbientGuard::capture();
  set_up(tracer, chain, captured, wishes);
  (void)tracer.run(chain, &point);
  raise_interrupt(tracer);
  const graph::Program& program = *failed.program;
  const graph::Program& part = tracer.recorder.program();
  if (tracer.cut.empty() || tracer.stopped || waits_through_native_code(tracer.cut) >= 0 ||
      !begins_like(program, part, failure.node))
    return {};
  if (leaving == Leaving::kAgain) {
    if (!may_repeat(program, part.nodes.size(), failure.node)) return {};
  } else {
    if (!stands_at(tracer.cut, program, program.nodes[failure.node])) return {};
    drop_variables(tracer.cut, part, failure, leaving == Leaving::kRaiseOnly);
  }
  try {
    Left left{build_entry(tracer, std::move(ambient), wishes, {}), {}, leaving != Leaving::kAgain};
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
  Wishes wishes{.may_assume = failed.manner.may_assume,
                .has_modes = failed.has_modes,
                .separate = failed.manner.separate,
                .may_break = false,
                .changing = failed.manner.changing.get(),
                .until = failure.node};
  const WithoutCollector until_the_trace_is_gone;
  const at::RecordFunctionGuard unseen(false);
  std::vector<trace::BreakPoint> points;
  {
    trace::OwnedTracer owned;
    trace::Tracer& tracer = *owned;
    set_up(tracer, chain, captured, wishes);
    (void)tracer.run(chain, nullptr);
    raise_interrupt(tracer);
    if (!tracer.stopped || tracer.break_points.empty()) return {};
    points = std::move(tracer.break_points);
  }
  wishes.until.reset();
  for (const Leaving leaving : {Leaving::kRaise, Leaving::kRaiseOnly}) {
    Left left = cut_failed(chain, failed, failure, points.front(), leaving, captured, wishes);
    if (left.entry != nullptr) return left;
  }
  for (const trace::BreakPoint& point : points) {
    Left left = cut_failed(chain, failed, failure, point, Leaving::kAgain, captured, wishes);
    if (left.entry != nullptr) return left;
  }
  return {};
}

// A reference is nothing but a pointer.
static_assert(sizeof(Ref) == sizeof(PyObject*) && std::is_standard_layout_v<Ref>);
PyObject* const* Entry::Outputs::begin() const {
  return of_backend ? PySequence_Fast_ITEMS(of_backend.get()) : reinterpret_cast<PyObject* const*>(own.data());
}

namespace {

// Where a backend's graph raises between what sets a state of the thread and what puts it back, nobody else does.
class StateAsBefore {
 public:
  explicit StateAsBefore(const graph::Ambient& state)
      : state_(state), nesting_(trace::autocast_nesting()), errors_(std::uncaught_exceptions()) {}
  ~StateAsBefore() {
    if (std::uncaught_exceptions() == errors_) return;
    state_.apply();
    trace::set_autocast_nesting(nesting_);
  }
  StateAsBefore(const StateAsBefore&) = delete;
  StateAsBefore& operator=(const StateAsBefore&) = delete;

 private:
  const graph::Ambient& state_;
  int nesting_, errors_;
};

}  // namespace

void Entry::run_graph(const std::vector<Ref>& values, Outputs* outputs, graph::Failure* failure) const {
  std::optional<WithoutModes> without_modes;
  if (has_modes) without_modes.emplace();
  // Where numpy would warn, the call runs as it is, and warns where the program does. Others, who might catch what is
  // raised then, see the errors that the thread wants.
  std::optional<lift::NumpyErrorsSet> errors;
  if (has_arrays && (repeatable || !assumptions.empty()) && !calls_others)
    errors.emplace(lift::NumpyErrorsSet::Kind::kRaised);
  c10::SmallVector<PyObject*, 16> copied;
  PyObject* const* arguments;
  size_t room = 0;
  if (side_by_side) {
    arguments = reinterpret_cast<PyObject* const*>(values.data() + inputs[0]);
  } else {
    copied.resize_for_overwrite(inputs.size() + 1);
    PyObject** argument = copied.data() + 1;
    arguments = argument;
    room = PY_VECTORCALL_ARGUMENTS_OFFSET;  // before them
    for (const Ref* from = values.data(); size_t position : inputs) *argument++ = from[position].get();
  }
  if (eager != nullptr && (!differentiates || has_hooks(values, inputs))) {
    eager->run_each(arguments, inputs.size(), &outputs->own, failure);
  } else {
    const StateAsBefore state(program->states[0]);
    Ref result;
    if (boxed) {
      Ref list = checked(PyList_New(static_cast<Py_ssize_t>(inputs.size())));
      for (size_t i = 0; i < inputs.size(); i++)
        PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), Py_NewRef(arguments[i]));
      result = checked(PyObject_CallOneArg(compiled.get(), list.get()));
    } else {
      result = checked(PyObject_Vectorcall(compiled.get(), arguments, inputs.size() | room, nullptr));
    }
    const bool is_sequence = PyTuple_Check(result.get()) || PyList_Check(result.get());
    if (!is_sequence || PySequence_Fast_GET_SIZE(result.get()) != output_count) {
      PyErr_Format(PyExc_RuntimeError,
                   "alternator: what the backend made of the graph must return a tuple or list of %zd results, not %R",
                   output_count, result.get());
      throw PyError();
    }
    outputs->of_backend = std::move(result);
  }
}

// The default generators, put back where they were.
class Drawn {
 public:
  Drawn() {
    add(at::detail::getDefaultCPUGenerator());
    if (!at::globalContext().hasCUDA()) return;
    for (c10::DeviceIndex i = 0; i < static_cast<c10::DeviceIndex>(at::detail::getCUDAHooks().deviceCount()); i++) {
      if (at::detail::getCUDAHooks().hasPrimaryContext(i))
        add(at::globalContext().defaultGenerator(c10::Device(c10::kCUDA, i)));
    }
  }
  void put_back() {
    for (auto& [generator, state] : states_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

 private:
  void add(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    states_.emplace_back(generator, generator.get_state());
  }
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

// A check that fails again and again is no check.
void Entry::refute(size_t assumption) {
  static constexpr int kMostRefuted = 3;
  Assumption& failed = assumptions[assumption];
  if (++failed.refuted < kMostRefuted) return;
  distrusted = true;
  trace::distrust(failed.code, failed.index);
}

// False: the data is not as assumed, or the graph failed, which it may have done for that reason.
bool Entry::run_and_check(const std::vector<Ref>& values, Outputs* outputs) {
  std::optional<Drawn> drawn;
  if (draws) drawn.emplace();
  try {
    run_graph(values, outputs);
  } catch (const PyError&) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) throw;
    PyErr_Clear();
    if (drawn) drawn->put_back();
    return false;
  }
  for (size_t i = 0; i < assumptions.size(); i++) {
    Borrowed flag = outputs->begin()[i];
    if (truth(flag).value() == assumptions[i].wanted) continue;
    refute(i);
    if (drawn) drawn->put_back();
    return false;
  }
  return true;
}

// Whether what was raised is raised by the graph. Whoever writes a backend wants to see what that raises.
bool Entry::is_of_graph() const {
  if (!compiled || is_torchs || has_arrays) return true;
  Ref error = cpython::take_raised();
  bool found = false;
  Ref trace = Ref::steal(PyException_GetTraceback(error.get()));
  auto* first = trace && PyTraceBack_Check(trace.get()) ? trace.as<PyTracebackObject>() : nullptr;
  for (auto* at = first; at != nullptr && !found; at = at->tb_next) {
    Ref code = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(at->tb_frame)));
    const char* file = PyUnicode_AsUTF8(code.as<PyCodeObject>()->co_filename);
    if (file == nullptr) PyErr_Clear();
    found = file != nullptr && std::string_view(file).starts_with("<eval_with_key>");  // of a graph module
  }
  cpython::set_raised(std::move(error));
  return found;
}

// How often each input has been written to; empty: it cannot be said.
static std::vector<uint32_t> versions_of(const std::vector<Ref>& values, const std::vector<size_t>& inputs) {
  std::vector<uint32_t> versions;
  for (size_t position : inputs) {
    if (!graph::is_tensor(values[position])) return {};
    const at::Tensor& tensor = fake::unpack(values[position].get());
    if (tensor.is_inference()) return {};
    versions.push_back(tensor.unsafeGetTensorImpl()->version_counter().current_version());
  }
  return versions;
}

// Scopes of autocast that the call opens and leaves open: the graph closes its own, and the casts of weights that it
// kept are needed behind the break.
class OpenScopes {
 public:
  explicit OpenScopes(int count) : count_(count) {
    if (count_ > 0) trace::set_autocast_nesting(trace::autocast_nesting() + count_);
  }
  ~OpenScopes() {
    if (count_ > 0) trace::set_autocast_nesting(trace::autocast_nesting() - count_);
  }
  OpenScopes(const OpenScopes&) = delete;
  OpenScopes& operator=(const OpenScopes&) = delete;
  void keep() { count_ = 0; }

 private:
  int count_;
};

Ref Entry::run(const std::vector<Ref>& values, Chain* chain, graph::Failure* failure) {
  Outputs outputs;
  OpenScopes scopes(exit_nesting);
  std::optional<graph::WarningsKept> kept;
  if (!warnings.empty()) {
    if (graph::may_raise_warnings()) return {};  // as it is: nothing has happened yet
    kept.emplace(graph::WarningsKept::Kind::kRun);
  }
  if (assumptions.empty()) {
    const std::vector<uint32_t> versions = writes_last ? versions_of(values, inputs) : std::vector<uint32_t>();
    // AOTAutograd counts what is going to be written once before; what writes counts it again.
    const auto is_unwritten = [&] {
      const std::vector<uint32_t> now = versions.empty() ? versions : versions_of(values, inputs);
      return !now.empty() && std::equal(now.begin(), now.end(), versions.begin(), versions.end(),
                                        [](uint32_t after, uint32_t before) { return after <= before + 1; });
    };
    std::optional<Drawn> drawn;
    if (draws && (repeatable || !versions.empty())) drawn.emplace();
    try {
      leaving_transforms(transforms, [&] { run_graph(values, &outputs, repeatable ? nullptr : failure); });
    } catch (const PyError&) {
      const bool may_repeat = repeatable || is_unwritten();
      if (kept && !may_repeat) {
        const SavedError on_its_way;
        std::vector<graph::Warning> given = kept->take();
        kept.reset();
        graph::give(std::move(given), &warnings);
      }
      if (!may_repeat || !PyErr_ExceptionMatches(PyExc_Exception) || !is_of_graph()) throw;
      // The program says what is wrong, and where, and leaves what it had done until then.
      PyErr_Clear();
      if (drawn) drawn->put_back();
      return {};
    }
  } else {
    if (!run_and_check(values, &outputs)) return {};
  }
  if (kept) {
    std::vector<graph::Warning> given = kept->take();
    kept.reset();
    graph::give(std::move(given), &warnings);
  }
  return finish(values, outputs.begin(), outputs.size(), chain, scopes);
}

Ref Entry::finish(const std::vector<Ref>& values, PyObject* const* outputs, size_t count, Chain* chain) {
  OpenScopes scopes(exit_nesting);
  return finish(values, outputs, count, chain, scopes);
}

Ref Entry::finish(const std::vector<Ref>& values, PyObject* const* outputs, size_t count, Chain* chain,
                  OpenScopes& scopes) {
  replay::Residual::Results results = residual.run_all(values, outputs, count);
  if (exit_state) exit_state->apply();
  scopes.keep();
  if (exit_nesting < 0) trace::set_autocast_nesting(trace::autocast_nesting() + exit_nesting);
  for (size_t i = 0; i < exit_popped; i++) PythonTorchFunctionTLS::pop_stack();
  for (size_t i = results.size() - exit_pushed; i < results.size(); i++)
    PythonTorchFunctionTLS::push_onto_stack(
        std::make_shared<c10::SafePyObject>(results[i].release(), getPyInterpreter()));
  if (residual.program().raises) replay::raise_again(std::move(results[0]));
  if (stop.empty()) return std::move(results[0]);
  for (const FrameState& shape : stop) trace::take_shape(&chain->emplace_back(), shape);
  size_t next = 0;
  trace::each_value(*chain, [&](Ref& value) { value = std::move(results[next++]); });
  return {};
}

}  // namespace alternator::dispatch
