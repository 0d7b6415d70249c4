// One compiled path from a resume point to the function's end or to the next break: guards, graph, residual program.
#pragma once

#include "backend/graph_runner.h"
#include "dispatch/exit_state.h"
#include "dispatch/failure_policy.h"
#include "graph/record/torch_warnings.h"
#include "guards/guard_program.h"
#include "interpreter/control.h"
#include "lift/lifting/symbol_fates.h"
#include "replay/residual.h"
#include "report/event.h"
#include "trace/core/trace_options.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

namespace alternator::dispatch {

struct ResumePoint;

class Entry {
 public:
  Entry() = default;
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  std::unique_ptr<guards::GuardProgram> guards;
  backend::GraphRunner graph;
  FailurePolicy on_failure = FailurePolicy::kRecover;
  replay::Residual residual;
  ExitState exit;
  std::vector<graph::Warning> warnings;  // given by torch during the trace: a run gives them at the same lines
  bool prints = false;                   // output and warnings keep their order

  // Required values of the graph's first outputs; if they differ, the call falls back to eager.
  struct Check {
    bool expected;
    Ref code;
    int index;
    int refuted = 0;  // how often the check failed
  };
  std::vector<Check> checks;
  bool is_refuted = false;  // one of the checks failed too often: it is not speculated on any more

  // Why calls with these guards run eagerly, if nothing could be captured.
  std::optional<report::Break> eager_because;
  bool refuses = false;  // ... and error_on_graph_break(True) makes that an error
  // If it ends in mid-function, before an instruction that is executed concretely: the frames without their values.
  Chain stop;
  std::optional<report::Break> stops_because;
  // Sizes and numbers that were symbols of the trace.
  std::vector<lift::SymbolFate> symbols;
  bool met_symbolic_numbers = false;  // whether the trace had some; it may have been cut before
  bool is_symbolic() const {
    return std::any_of(symbols.begin(), symbols.end(), [](const lift::SymbolFate& fate) { return !fate.is_fixed; });
  }
  // Values of the frames at its stop that vary; `sizes` 0: a number.
  struct OpenValue {
    int64_t position;
    uint64_t sizes;
  };
  std::vector<OpenValue> open_values;
  std::weak_ptr<ResumePoint> next;  // resume point that followed its stop last time

  trace::TraceOptions traced_with;  // to retrace the same path
  uint64_t hits = 0;
  struct Phases {
    double trace = 0, install = 0;  // seconds: tracing; building the residual program and the guards
  } phases;

  bool has_graph() const { return graph.has_graph(); }
  // Whether its guards hold for this call; fills the needed values.
  bool admits(const guards::Roots& roots, std::vector<Ref>* values) const;
  Ref guard_texts() const;  // a list of strings
  // The rest of a call whose guards hold: its result; or null, and `chain` is where it resumes. The caller sets the
  // outermost frame's function. If `chain` is empty too, a speculated check failed or the graph raised, and no side
  // effect has happened. If it throws, `failure` holds what is known of the failed node.
  Ref run(const std::vector<Ref>& values, Chain* chain, graph::Failure* failure);
  // Side effects and results, after the graph has run.
  Ref finish(const std::vector<Ref>& values, PyObject* const* outputs, size_t count, Chain* chain);

 private:
  Ref finish(const std::vector<Ref>& values, PyObject* const* outputs, size_t count, Chain* chain,
             ExitState::OpenScopes& scopes, graph::WarningsInTurn* warned);
  bool run_graph(const std::vector<Ref>& values, backend::GraphOutputs* outputs, graph::Failure* failure,
                 std::optional<graph::WarningsKept>* kept) const;
  bool run_and_check(const std::vector<Ref>& values, backend::GraphOutputs* outputs);
  void refute(size_t check);
};

// Traces from a stopped chain of frames; a function that has not begun is such a chain. An entry that captured nothing
// says why in `eager_because`: what the trace read until then is guarded, so that only matching calls run eagerly.
// Null: what it had read changed while it ran. `roots`: the chain's values, for guards. Of `options`, the caller sets
// may_break and unspecialized. `numpy_constants`: numpy scalars are constants (otherwise inputs:
// lift/lifting/numpy_scalar_inputs.h); set to true if they have to be.
std::unique_ptr<Entry> trace_entry(const Chain& chain, const guards::Roots& roots, const backend::Backend& backend,
                                   trace::TraceOptions options, bool last_try, bool* numpy_constants,
                                   lift::Dynamism* known);

}  // namespace alternator::dispatch
