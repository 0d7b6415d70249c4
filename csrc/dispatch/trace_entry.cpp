// Traces a stopped chain of frames, and restarts the trace with other options where it has to.
#include "dispatch/build_entry.h"
#include "dispatch/verify_trace.h"
#include "fake/functorch_state.h"
#include "fake/saved_hooks.h"
#include "graph/sizes/torch_sizes.h"
#include "lift/lifting/numpy_scalar_inputs.h"
#include "py/gc.h"
#include "report/reason_flags.h"
#include "trace/symbolic/deferred_values.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <chrono>

namespace alternator::dispatch {

using trace::TraceOptions;
using trace::TraceResult;

namespace {

// The call pops a torch-function mode of its caller.
struct NeedsModes {};

// The sizes of what an operator returns are to be asked of torch.
struct NeedsTorchSizes {};

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

// Retraces as far as the instruction that stopped the trace and cuts there, so nothing has to be undone. If that frame
// cannot be resumed there, its caller's instruction is executed concretely, and so on. Null: no such point.
static std::unique_ptr<Entry> stop_before(const Chain& chain, const std::vector<trace::BreakPoint>& points,
                                          const TraceOptions& options, Entry::Phases* phases) {
  for (size_t at = 0; at < points.size();) {
    const ThreadAsBefore thread;
    trace::OwnedTracer owned(options);
    trace::Tracer& tracer = *owned;
    guards::AmbientGuard ambient = guards::AmbientGuard::capture();
    Clock clock;
    const TraceResult& traced = uninterrupted(tracer.run(chain, &points[at]));
    phases->trace += clock.lap();
    if (!is_whole(traced.cut, chain) || traced.stopped) return nullptr;
    if (const int native = waits_through_native_code(traced.cut); native >= 0) {
      at += std::max(native, 1);
      continue;
    }
    try {
      std::unique_ptr<Entry> entry = build_entry(tracer, std::move(ambient));
      phases->install += clock.lap();
      verify_trace(chain, tracer, &points[at], *entry);
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

// Where a trace has returned or raised.
static std::unique_ptr<Entry> entry_of_whole(trace::Tracer& tracer, guards::AmbientGuard ambient, const Chain& chain,
                                             bool has_numpy_scalars, Entry::Phases* phases) {
  Clock clock;
  try {
    std::unique_ptr<Entry> entry = build_entry(tracer, std::move(ambient));
    phases->install += clock.lap();
    verify_trace(chain, tracer, nullptr, *entry);
    // If numpy would warn, the call starts over eagerly: no side effect may have happened, and no user code may see the
    // error that is raised instead of the warning.
    const backend::GraphFacts& facts = entry->graph.facts();
    if (has_numpy_scalars && (!facts.may_run_twice() || facts.draws_random || facts.calls_third_party))
      throw NeedsNumpyConstants();
    return entry;
  } catch (const NeedsRepeatable&) {
    if (has_numpy_scalars) throw NeedsNumpyConstants();
    throw;
  } catch (const NeedsSeparateSegments&) {
    if (has_numpy_scalars) throw NeedsNumpyConstants();
    throw;
  } catch (const replay::CannotRebuild& error) {
    if (has_numpy_scalars) throw NeedsNumpyConstants();
    // If a deferred random value leaves the call, the trace can be cut before the value is drawn.
    std::unique_ptr<Entry> entry;
    if (tracer.options.may_break) entry = stop_before(chain, tracer.deferred->points, tracer.options, phases);
    if (entry == nullptr)
      return build_eager_entry(tracer, std::move(ambient), {report::Reason::cannot_reconstruct, error.what(), {}, 0});
    entry->stops_because = tracer.deferred->event;
    return entry;
  }
}

// Where a trace has stopped.
static std::unique_ptr<Entry> entry_of_stopped(trace::Tracer& tracer, guards::AmbientGuard ambient, const Chain& chain,
                                               Entry::Phases* phases) {
  TraceResult& traced = tracer.result;
  const bool is_break = !report::has(traced.stopped->reason, report::kAnywhere);
  if (is_break && traced.refuses) {
    std::unique_ptr<Entry> entry = build_eager_entry(tracer, std::move(ambient), *traced.stopped);
    entry->refuses = true;
    return entry;
  }
  // A callee that asks to be skipped runs eagerly, called from its caller's instruction.
  if (traced.stopped->reason == report::Reason::skipped && !traced.break_points.empty())
    traced.break_points.erase(traced.break_points.begin());
  std::unique_ptr<Entry> entry;
  const bool may_break = tracer.options.may_break && is_break && !tracer.options.only_whole;
  if (may_break) entry = stop_before(chain, traced.break_points, tracer.options, phases);
  // A frame may hold a deferred random value.
  if (may_break && entry == nullptr) entry = stop_before(chain, tracer.deferred->points, tracer.options, phases);
  if (entry == nullptr) return build_eager_entry(tracer, std::move(ambient), *traced.stopped);
  entry->stops_because = *traced.stopped;
  return entry;
}

static std::unique_ptr<Entry> trace_once(const Chain& chain, const guards::Roots& roots,
                                         const backend::Backend& backend, const TraceOptions& options, bool last_try) {
  std::unique_ptr<Entry> entry;
  Entry::Phases phases;
  {
    const WithoutCollector until_the_trace_is_gone;  // nearly all garbage dies with the trace
    const at::RecordFunctionGuard unseen(false);     // profilers must not see operators on fake tensors
    const lift::NumpyScalarInputs handed(!options.numpy_constants);
    const ThreadAsBefore thread;
    trace::OwnedTracer owned(options);
    trace::Tracer& tracer = *owned;
    guards::AmbientGuard ambient = guards::AmbientGuard::capture();
    Clock clock;
    const TraceResult& traced = uninterrupted(tracer.run(chain, nullptr));
    phases.trace += clock.lap();
    if (!traced.value && traced.wants_modes) throw NeedsModes();
    if (graph::has_lacked_torch_sizes()) throw NeedsTorchSizes();
    if (handed.any() && (!traced.value || traced.raises)) throw NeedsNumpyConstants();
    const std::shared_ptr<fake::BackedSymbols> symbols = tracer.lifter.symbolic->symbols;
    entry = traced.value ? entry_of_whole(tracer, std::move(ambient), chain, handed.any(), &phases)
                         : entry_of_stopped(tracer, std::move(ambient), chain, &phases);
    entry->met_symbolic_numbers = symbols != nullptr && symbols->has_numbers();
  }
  entry->phases = phases;
  if (entry->eager_because) return entry;
  return compile_entry(*entry, roots, backend, chain.back().code, last_try) ? std::move(entry) : nullptr;
}

// What is not marked as dynamic is static in later traces too.
static void keep_static(const NeedsStatic& needed, lift::Dynamism* dynamism) {
  for (const auto& [text, dimensions] : needed.sizes) dynamism->static_sizes[text] |= dimensions;
  for (const auto& [text, dimensions] : needed.layouts) dynamism->static_layouts[text] |= dimensions;
  dynamism->static_numbers.insert(needed.numbers.begin(), needed.numbers.end());
}

// In this trace, whatever marks say. False: all of them were given up before.
static bool give_up(const NeedsStatic& needed, lift::Dynamism* dynamism) {
  bool is_new = false;
  for (const auto& [text, dimensions] : needed.sizes) {
    lift::Dynamism::GivenUp& given_up = dynamism->given_up[text];
    is_new = is_new || (dimensions & ~given_up.sizes) != 0;
    given_up.sizes |= dimensions;
    given_up.reason = needed.reason;
    given_up.site = {Ref(needed.site.code), needed.site.index};
  }
  for (const auto& [text, dimensions] : needed.layouts) {
    uint64_t& known = dynamism->static_layouts[text];
    is_new = is_new || (dimensions & ~known) != 0;
    known |= dimensions;
  }
  for (const std::string& text : needed.numbers) is_new = dynamism->static_numbers.insert(text).second || is_new;
  return is_new;
}

std::unique_ptr<Entry> trace_entry(const Chain& chain, const guards::Roots& roots, const backend::Backend& backend,
                                   TraceOptions options, bool last_try, bool* numpy_constants, lift::Dynamism* known) {
  // Torch compilers have no numpy scalar inputs, and make faster code of constants.
  if (!*numpy_constants && !backend.takes_numpy_scalars()) *numpy_constants = true;
  options.may_speculate = !fake::has_saved_hooks();
  options.numpy_constants = *numpy_constants;
  options.captured = {.scalars = !options.may_break || is_set("capture_scalar_outputs"),
                      .sizes = !options.may_break || is_set("capture_dynamic_output_shape_ops")};
  for (;;) {
    try {
      return trace_once(chain, roots, backend, options, last_try);
    } catch (const NeedsRepeatable&) {
      options.may_speculate = false;
    } catch (const NeedsSeparateSegments&) {
      options.separates = true;
    } catch (const NeedsTorchSizes&) {
      graph::load_torch_sizes();
    } catch (const NeedsModes&) {
      options.has_modes = true;
    } catch (const NeedsNumpyConstants&) {
      options.numpy_constants = *numpy_constants = true;
    } catch (const NeedsStatic& needed) {
      keep_static(needed, known);
      auto dynamism = std::make_shared<lift::Dynamism>(*options.dynamism);
      // Nothing else remains if that is not what made the symbols.
      options.dynamism = give_up(needed, dynamism.get()) ? std::move(dynamism) : nullptr;
    }
  }
}

}  // namespace alternator::dispatch
