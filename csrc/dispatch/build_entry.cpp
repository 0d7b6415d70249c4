#include "dispatch/build_entry.h"

#include "dispatch/shape_specs.h"
#include "fake/saved_hooks.h"
#include "graph/record/record_error.h"
#include "interpreter/frame_values.h"
#include "lift/lifting/write_log.h"
#include "shapes/expression_text.h"
#include "trace/core/frame_access.h"
#include "trace/numpy/concrete_arrays.h"
#include "trace/soundness/observable_failures.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/symbolic/deferred_values.h"

namespace alternator::dispatch {

using trace::TraceResult;

// Null: no guard is on an expression, and none has to be computed.
static std::shared_ptr<fake::BackedSymbols> guarded_symbols(const trace::Tracer& tracer, const Entry& entry) {
  const std::shared_ptr<fake::BackedSymbols>& symbols = tracer.lifter.symbolic->symbols;
  return symbols != nullptr && !lift::are_all_fixed(entry.symbols, *symbols) ? symbols : nullptr;
}

// The values of the frames at a cut that vary in this trace: in the next one they are symbols from the start.
static std::vector<Entry::OpenValue> open_values(trace::Tracer& tracer) {
  std::vector<Entry::OpenValue> open;
  int64_t position = 0;
  each_value(tracer.result.cut, [&](const Ref& value) {
    if (value) {
      const uint64_t sizes = tracer.backed->varying_sizes(value);
      const bool is_number = tracer.backed->varies(value);
      if (sizes != 0 || is_number) open.push_back({position, sizes});
    }
    position++;
  });
  return open;
}

std::unique_ptr<Entry> build_eager_entry(trace::Tracer& tracer, guards::AmbientGuard ambient, report::Break why) {
  auto entry = std::make_unique<Entry>();
  entry->eager_because = std::move(why);
  entry->symbols = lift::end_symbols(*tracer.tree, *tracer.lifter.symbolic);
  entry->guards = std::make_unique<guards::GuardProgram>(std::move(tracer.tree), std::vector<lift::Source*>(),
                                                         std::move(ambient), guarded_symbols(tracer, *entry));
  return entry;
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

// What the residual program returns: the function's result, or the values of the frames at the cut; then the modes to
// be pushed.
static std::vector<Borrowed> results_of(const TraceResult& traced) {
  std::vector<Borrowed> results;
  if (traced.value) {
    results.push_back(traced.value);
  } else {
    each_value(traced.cut, [&](const Ref& value) { results.push_back(value); });
  }
  for (const Ref& mode : traced.exit.pushed_modes) results.push_back(mode);
  return results;
}

// Throws where the graph of the entry must not be what the trace has recorded.
static void check_graph(const trace::Tracer& tracer, const Entry& entry) {
  const graph::Program& program = entry.graph.program();
  const backend::GraphFacts& facts = entry.graph.facts();
  if (facts.has_arrays && facts.has_unbacked_symbols && facts.mutates)
    throw replay::CannotRebuild("unbacked symbols next to a numpy array that is mutated");
  // A deferred string is no side effect. Deferred random values and hooks are.
  const bool only_strings = tracer.deferred->event && tracer.deferred->event->reason == report::Reason::tensor_text &&
                            tracer.lifter.write_log->effects().empty();
  const bool draws = !tracer.deferred->points.empty() && !only_strings;
  if (!entry.checks.empty() && (!facts.may_run_twice() || draws)) throw NeedsRepeatable();
  if (tracer.options.may_break && trace::has_lasting_writes(program) && trace::has_caught_failures(program)) {
    if (tracer.options.separates)
      throw replay::CannotRebuild("a call that may fail inside of a `try`, next to an irreversible mutation");
    throw NeedsSeparateSegments();
  }
}

// The sources of the graph's inputs join the needed ones; numbers that the guards compute come after all of them.
static void find_inputs(backend::GraphRunner& graph, lift::SourceTree& tree, std::vector<lift::Source*>* needed) {
  graph::Program& program = graph.program();
  std::vector<size_t> positions, numbers;
  std::vector<const lift::Source*> sources;
  for (uint32_t declared : program.inputs) {
    if (const shapes::Expression number = program.declared[declared].number) {
      numbers.push_back(positions.size());
      positions.push_back(program.backed->result_of(number));
      sources.push_back(nullptr);
      continue;
    }
    lift::Source* source = tree.at(PyLong_AsUnsignedLong(program.declared[declared].source.get()));
    size_t position = 0;
    while (position < needed->size() && (*needed)[position] != source) position++;
    if (position == needed->size()) needed->push_back(source);
    positions.push_back(position);
    sources.push_back(source);
  }
  for (const size_t number : numbers) positions[number] += needed->size();
  graph.set_inputs(std::move(positions), std::move(sources));
}

// After the last source: where the residual program finds the numbers that the guards compute.
static void place_numbers(replay::Residual& residual, const fake::BackedSymbols& symbols, size_t first) {
  std::vector<std::string> texts;
  for (const shapes::Expression expression : symbols.results()) texts.push_back(shapes::text(expression));
  residual.place_numbers(first, texts);
}

static void drop_nodes(graph::Program& program) {
  for (graph::Node& node : program.nodes) node.live = false;
  program.inputs.clear();
}

// The order of construction: the residual program determines which tensors the graph returns; the recorder then knows
// which inputs the graph needs; their sources join the needed ones; last come the guards, which take over the tree of
// sources.
std::unique_ptr<Entry> build_entry(trace::Tracer& tracer, guards::AmbientGuard ambient) {
  const TraceResult& traced = tracer.result;
  tracer.backed->finish();
  auto entry = std::make_unique<Entry>();
  replay::Frames frames{{}, tracer.frames->ended_frames()};
  if (!traced.value) {
    for (const FrameState& state : traced.cut) {
      entry->stop.push_back(shape_of(state));
      if (state.frame_object) frames.go_on.push_back(state.frame_object);
    }
  }
  std::vector<Ref> outputs;
  for (const trace::SpeculatedCheck& check : traced.checks) {
    outputs.push_back(check.tensor);
    entry->checks.push_back({check.expected, check.code, check.index});
  }
  std::vector<lift::Source*> needed;
  entry->residual =
      replay::Residual::build(tracer.lifter, results_of(traced), &outputs, &needed, traced.raises, frames);
  if (tracer.arrays->leaves_with_array(outputs))
    throw replay::CannotRebuild("a tensor and an array with the same memory");
  Ref list = checked(PyList_New(static_cast<Py_ssize_t>(outputs.size())));
  for (size_t i = 0; i < outputs.size(); i++)
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), Py_NewRef(outputs[i].get()));
  auto program = finish_recording(tracer.recorder, list);
  // What a call computes before it raises may be of no use: then there is nothing to compile.
  if (traced.raises && trace::is_unneeded(*program)) drop_nodes(*program);
  entry->graph = backend::GraphRunner(std::move(program), PyList_GET_SIZE(list.get()), tracer.options.has_modes);
  entry->warnings = graph::take_noted_warnings();
  entry->prints = !tracer.lifter.write_log->effects().empty();
  check_graph(tracer, *entry);
  entry->exit = ExitState(traced.exit, entry->graph.program().states[0]);
  find_inputs(entry->graph, *tracer.tree, &needed);
  entry->graph.set_symbols(*tracer.tree, needed);
  const std::shared_ptr<fake::BackedSymbols> symbols = tracer.lifter.symbolic->symbols;
  if (symbols != nullptr) place_numbers(entry->residual, *symbols, needed.size());
  if (traced.flag_groups != 0) ambient.add_flags(*traced.flags_before, traced.flag_groups);
  if (!traced.value && symbols != nullptr) entry->open_values = open_values(tracer);
  entry->symbols = lift::end_symbols(*tracer.tree, *tracer.lifter.symbolic);
  entry->guards = std::make_unique<guards::GuardProgram>(std::move(tracer.tree), needed, std::move(ambient),
                                                         guarded_symbols(tracer, *entry));
  entry->traced_with = tracer.options;
  return entry;
}

void NeedsStatic::add(const std::string& source, const fake::BackedSymbols::Origin& origin) {
  const uint64_t bit = uint64_t{1} << origin.dimension;
  if (origin.reads == fake::BackedSymbols::Reads::kSize) {
    sizes[source] |= bit;
  } else if (fake::BackedSymbols::is_of_tensor(origin.reads)) {
    layouts[source] |= bit;
  } else {
    numbers.insert(source);
  }
}

static NeedsStatic needs_static(const backend::GraphRunner& graph, const std::vector<uint32_t>& symbols) {
  NeedsStatic needed{.reason = "a compiler needs it as a constant"};
  for (const uint32_t number : symbols)
    needed.add(graph.source_of_symbol(number).text(), graph.program().backed->origins()[number]);
  return needed;
}

// What a compiler has assumed of sizes and numbers.
static void guard_conditions(Entry& entry, const std::vector<backend::Assumption>& conditions) {
  std::vector<shapes::Expression> added;
  std::vector<std::string> origins;
  for (const auto& [condition, origin] : conditions) {
    shapes::ShapeEnvironment& environment = entry.graph.program().backed->environment;
    const shapes::Assumed assumed = environment.assume(condition);
    if (assumed == shapes::Assumed::kContradiction) throw needs_static(entry.graph, entry.graph.symbols());
    if (assumed != shapes::Assumed::kRecorded) continue;
    added.push_back(environment.guards().back().condition);
    origins.push_back(origin);
  }
  if (!added.empty()) entry.guards->add_size_guards(added, origins);
}

bool compile_entry(Entry& entry, const guards::Roots& roots, const backend::Backend& backend, Borrowed code,
                   bool last_try) {
  std::vector<Ref> values;
  // Another thread may have mutated state meanwhile, or a module was imported late: an entry is valid only once its
  // guards hold.
  if (!entry.guards->check(roots, &values)) {
    if (last_try) throw InternalError("the guards of a new trace do not hold: " + entry.guards->failure(roots));
    return false;
  }
  backend::GraphRunner& graph = entry.graph;
  // Saved-tensor hooks may raise anything, anywhere (checkpoint() stops its recomputation so): what the call had done
  // until then is known only if the recorded program runs, uncompiled.
  const bool hooks_may_raise =
      fake::has_saved_hooks() && (entry.residual.acts() || trace::has_observed_nodes(graph.program()));
  if (!backend.callable || !graph.has_graph() || hooks_may_raise) {
    graph.run_recorded();
  } else {
    const backend::Compilation done = graph.compile(backend, values, code);
    if (done.wants_numpy_constants) throw NeedsNumpyConstants();
    if (!done.specialize.empty()) throw needs_static(graph, done.specialize);
    guard_conditions(entry, done.conditions);
  }
  if (const Ref spec = spec_of(backend)) guard_conditions(entry, spec_conditions(spec, entry));
  entry.on_failure = choose_failure_policy(graph, backend.traits, !entry.checks.empty());
  // User code in the graph, which might catch the error that is raised for a warning, sees the thread's own numpy
  // error settings.
  if (graph.facts().has_arrays && starts_over(entry.on_failure) && !graph.facts().calls_third_party)
    graph.raise_numpy_warnings();
  graph.program().modules.clear();  // an export names them; an entry must not keep them alive
  return true;
}

TraceResult& uninterrupted(TraceResult& traced) {
  if (!traced.interrupted) return traced;
  cpython::set_raised(std::move(traced.interrupted));
  throw PyError();
}

int waits_through_native_code(const Chain& chain) {
  for (size_t i = 0; i < chain.size(); i++) {
    if (chain[i].continuation == Continuation::kCannot) return static_cast<int>(i);
  }
  return -1;
}

bool is_whole(const Chain& cut, const Chain& from) {
  return !cut.empty() && cut.back().code.get() == from.back().code.get();
}

}  // namespace alternator::dispatch
