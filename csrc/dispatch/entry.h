// One compiled path from a resume point to the function's end or to the next break: guards, graph, residual program.
#pragma once

#include "interpreter/control.h"

#include "fake/thread_state.h"
#include "graph/record/ambient_state.h"
#include "graph/record/program.h"
#include "graph/run/program_runner.h"
#include "graph/run/torch_warnings.h"
#include "guards/guard_program.h"
#include "replay/residual.h"
#include "report/event.h"
#include "trace/core/trace_options.h"

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

namespace alternator::backend {
class Sharing;
}

namespace alternator::dispatch {

class OpenScopes;
struct ResumePoint;

class Entry {
 public:
  Entry();
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  std::unique_ptr<guards::GuardProgram> guards;
  std::shared_ptr<graph::Program> program;
  std::unique_ptr<graph::Replay> eager;  // the recorded program, uncompiled; or
  Ref compiled;                          // ... what the backend returned
  bool differentiates = false;           // the graph calls autograd.grad: if its inputs have hooks, it runs uncompiled
  bool transforms = false;               // the graph enters and exits functorch transforms
  bool boxed = false;                    // ... which takes its inputs as one list, and may clear it
  bool grad_around = true;               // ... and is called in this grad mode
  std::unique_ptr<backend::Sharing> sharing;  // if a backend's graph mutates its inputs: which of them overlap
  std::vector<size_t> inputs;                 // indices of the graph's inputs into the needed values
  bool side_by_side = false;                  // ... which are contiguous there
  std::vector<const lift::Source*> input_sources;
  replay::Residual residual;
  Py_ssize_t output_count = 0;  // of the graph
  // Required values of its first outputs; if they differ, the call falls back to eager.
  struct Check {
    bool expected;
    Ref code;
    int index;
    int refuted = 0;  // how often the check failed
  };
  std::vector<Check> checks;
  bool is_refuted = false;               // one of the checks failed too often: it is not speculated on any more
  bool draws = false;                    // the graph uses an RNG
  bool repeatable = false;               // if the graph raises, no side effect has happened yet
  bool writes_last = false;              // ... unless an input was mutated, which its version counter then shows
  bool is_torch_backend = false;         // the backend is one of torch's
  bool has_arrays = false;               // the graph computes with numpy arrays
  std::vector<graph::Warning> warnings;  // given by torch during the trace: a run gives them at the same lines
  bool shows = false;                    // it prints: output and warnings keep their order
  bool calls_others = false;             // it runs code that is neither torch's nor numpy's
  uint64_t hits = 0;
  struct Phases {
    double trace = 0, install = 0;  // seconds: tracing; building the residual program and the guards
  } phases;
  // Why calls with these guards run eagerly, if nothing could be captured.
  std::optional<report::Break> eager_because;
  bool refuses = false;  // ... and error_on_graph_break(True) makes that an error
  // If it ends in mid-function, before an instruction that is executed concretely: the frames without their values.
  Chain stop;
  std::optional<report::Break> stops_because;
  // The thread's state on exit, if the call changes it.
  std::optional<graph::Ambient> exit_state;
  int exit_nesting = 0;
  std::optional<fake::CastSettings> exit_casts;
  bool clears_casts = false;  // see Tracer
  // How many of the thread's torch-function modes are popped, and how many are pushed: the last results.
  size_t exit_popped = 0, exit_pushed = 0;
  bool has_modes = false;           // the effect of the modes on calls is in the graph: it runs without them
  std::weak_ptr<ResumePoint> next;  // resume point that followed its stop last time
  trace::TraceOptions traced_with;  // to retrace the same path

  bool has_graph() const { return program != nullptr && program->live_count() > 0; }
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
  // Outputs of the graph.
  struct Outputs {
    graph::Replay::Results own;  // of the recorded program; or
    Ref of_backend;              // a tuple or list

    PyObject* const* begin() const;
    size_t size() const {
      return of_backend ? static_cast<size_t>(PySequence_Fast_GET_SIZE(of_backend.get())) : own.size();
    }
  };
  Ref finish(const std::vector<Ref>& values, PyObject* const* outputs, size_t count, Chain* chain, OpenScopes& scopes,
             graph::WarningsInTurn* warned);
  bool run_and_check(const std::vector<Ref>& values, Outputs* outputs);
  void refute(size_t check);
  bool is_of_graph() const;
  void run_graph(const std::vector<Ref>& values, Outputs* outputs, graph::Failure* failure = nullptr) const;
};

struct Backend {
  Ref callable;  // null: "eager"
};
// Traces from a stopped chain of frames; a function that has not begun is such a chain. An entry that captured nothing
// says why in `eager_because`: what the trace read until then is guarded, so that only matching calls run eagerly.
// Null: what it had read changed while it ran. `roots`: the chain's values, for guards. Of `options`, the caller sets
// may_break and unspecialized. `numpy_constants`: numpy scalars are constants (otherwise inputs:
// lift/lifting/numpy_scalar_inputs.h); set to true if they have to be.
std::unique_ptr<Entry> trace_entry(const Chain& chain, const guards::Roots& roots, const Backend& backend,
                                   trace::TraceOptions options, bool last_try, bool* numpy_constants);

// The graph of an entry that was traced from `chain` has failed after irreversible mutations: what the call has done
// until then, and its position, as an entry whose graph has run already. Null: unknown.
struct Recovered {
  std::unique_ptr<Entry> entry;
  std::vector<Ref> outputs;
  bool has_raised = false;  // the instruction it resumes at has raised; otherwise that is executed again
};
Recovered retrace_failure(const Chain& chain, const Entry& failed, graph::Failure& failure);

}  // namespace alternator::dispatch
