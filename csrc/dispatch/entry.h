// One compiled way from a place in a function to its end or to the next break: guards, graph, residual program.
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
  std::unique_ptr<graph::Replay> eager;  // the recorded program itself; or
  Ref compiled;                          // ... what the backend made of it
  bool differentiates = false;           // the graph asks for gradients: with hooks on its inputs it runs as recorded
  bool transforms = false;               // the graph enters and leaves functorch's transforms
  bool boxed = false;                    // ... which takes its inputs as one list, and may empty it
  bool grad_around = true;               // ... and is called in this grad mode
  std::unique_ptr<backend::Sharing> sharing;  // where a backend's graph writes to its inputs: which of them overlap
  std::vector<size_t> inputs;                 // positions of the graph's inputs among the needed values
  bool side_by_side = false;                  // ... which follow each other there
  std::vector<const lift::Source*> input_sources;
  replay::Residual residual;
  Py_ssize_t output_count = 0;  // of the graph
  // What its first results must say; otherwise the call runs as it is.
  struct Assumption {
    bool wanted;
    Ref code;
    int index;
    int refuted = 0;  // how often it did not
  };
  std::vector<Assumption> assumptions;
  bool distrusted = false;               // one of them failed too often: that is not assumed any more
  bool draws = false;                    // the graph draws random numbers
  bool repeatable = false;               // where the graph raises, nothing has happened yet
  bool writes_last = false;              // ... unless an input has been written to, which its version then says
  bool is_torchs = false;                // the backend is one of torch's own
  bool has_arrays = false;               // the graph computes with arrays of numpy's
  std::vector<graph::Warning> warnings;  // that torch gave while it was traced: a run gives them there
  bool shows = false;                    // what it shows goes between those
  bool calls_others = false;             // it runs code that is neither torch's nor numpy's
  uint64_t hits = 0;
  struct Phases {
    double trace = 0, install = 0;  // seconds: following the program; the residual program and the guards
  } phases;
  // Why calls with these guards run as they are, where nothing could be captured.
  std::optional<report::Break> eager_because;
  bool refuses = false;  // ... and that error_on_graph_break(True) makes it an error
  // Where it ends in mid-function, before an instruction that is executed for real: the frames without their values.
  Chain stop;
  std::optional<report::Break> stops_because;
  // What the thread's state becomes, where the call changes it.
  std::optional<graph::Ambient> exit_state;
  int exit_nesting = 0;
  std::optional<fake::CastSettings> exit_casts;
  bool clears_casts = false;  // see Tracer
  // Of the thread's torch-function modes, how many are taken off, and how many are put there: the last results.
  size_t exit_popped = 0, exit_pushed = 0;
  bool has_modes = false;           // what they make of a call is in the graph: it runs without them
  std::weak_ptr<ResumePoint> next;  // where a call was last found after its stop
  // How it was traced: the same way is found again.
  struct Manner {
    bool may_assume = true, separate = false, scalars = false, sizes = false;
    std::shared_ptr<const std::unordered_set<std::string>> unspecialized;  // null: none
  } manner;

  bool has_graph() const { return program != nullptr && program->live_count() > 0; }
  // Whether it is good for this call; fills the needed values.
  bool admits(const guards::Roots& roots, std::vector<Ref>* values) const;
  Ref guard_texts() const;  // a list
  // The rest of a call whose guards hold: its result; or null, and `chain` is where it goes on. The outermost frame's
  // function is the caller's to fill in. Where `chain` is empty too, the data is not as assumed, or the graph raised,
  // and nothing has happened. Where it throws, `failure` says what is known of it.
  Ref run(const std::vector<Ref>& values, Chain* chain, graph::Failure* failure);
  // What it does when the graph has run.
  Ref finish(const std::vector<Ref>& values, PyObject* const* outputs, size_t count, Chain* chain);

 private:
  // What the graph gives.
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
  void refute(size_t assumption);
  bool is_of_graph() const;
  void run_graph(const std::vector<Ref>& values, Outputs* outputs, graph::Failure* failure = nullptr) const;
};

struct Backend {
  Ref callable;  // null: "eager"
};
// Traces from a stopped chain of frames; a function that has not begun is one. An entry that captured nothing says why
// in `eager_because`: what the trace read until then is guarded, so that only such calls are given up. Null: what it
// had read changed while it ran. `roots`: the chain's values, for guards.
// `unspecialized`: as in lift::Lifter.
// `knows_numpy`: numbers of numpy's are constants (otherwise lift/lifting/numpy_scalar_inputs.h); it becomes true where
// they have to be.
std::unique_ptr<Entry> trace_entry(const Chain& chain, const guards::Roots& roots, const Backend& backend,
                                   bool may_break, bool last_try, const std::unordered_set<std::string>* unspecialized,
                                   bool* knows_numpy);

// The graph of an entry that was traced from `chain` has failed, after it has written for good: what the call has done
// until then, and where it stands, as an entry whose graph has run already. Null: it cannot be said.
struct Left {
  std::unique_ptr<Entry> entry;
  std::vector<Ref> outputs;
  bool has_raised = false;  // the instruction that it stands before has; otherwise that is executed again
};
Left trace_failure(const Chain& chain, const Entry& failed, graph::Failure& failure);

}  // namespace alternator::dispatch
