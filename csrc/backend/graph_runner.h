// Runs the graph of an entry: the recorded program, or what a backend has made of it.
#pragma once

#include "backend/graph_facts.h"
#include "backend/handoff.h"
#include "backend/memory_overlap.h"
#include "backend/symbolic_arguments.h"
#include "graph/run/program_runner.h"

#include <memory>
#include <vector>

namespace alternator::backend {

// The results of one run.
struct GraphOutputs {
  graph::Replay::Results recorded;  // of the recorded program; or
  Ref compiled;                     // ... of a backend: a tuple or list

  PyObject* const* begin() const;
  size_t size() const {
    return compiled ? static_cast<size_t>(PySequence_Fast_GET_SIZE(compiled.get())) : recorded.size();
  }
};

// What came of a compilation, besides what runs the graph. With either of the first two nothing was compiled.
struct Compilation {
  bool wants_numpy_constants = false;  // numpy scalar inputs must become constants first
  std::vector<uint32_t> specialize;    // these symbols must become constants first
  std::vector<Assumption> conditions;  // the guards of the entry must check them

  bool is_done() const { return !wants_numpy_constants && specialize.empty(); }
};

class GraphRunner {
 public:
  GraphRunner() = default;
  GraphRunner(std::shared_ptr<graph::Program> program, Py_ssize_t output_count, bool without_modes);

  // Where the inputs are among the needed values of an entry.
  void set_inputs(std::vector<size_t> positions, std::vector<const lift::Source*> sources);
  // Of a graph with symbols; before guards are made, which compute the numbers.
  void set_symbols(lift::SourceTree& tree, const std::vector<lift::Source*>& needed);
  // It runs the recorded program.
  void run_recorded();
  // It runs what the backend makes of the graph for these values, or the recorded program if the backend prefers that.
  Compilation compile(const Backend& backend, const std::vector<Ref>& values, Borrowed code);
  // Of a graph with symbols: those of its inputs, by number; the source that one reads.
  std::vector<uint32_t> symbols() const { return symbolic_->symbols(); }
  const lift::Source& source_of_symbol(uint32_t number) const { return *symbolic_->sources_of_symbols[number]; }

  bool has_graph() const { return program_ != nullptr && program_->live_count() > 0; }
  bool is_compiled() const { return static_cast<bool>(compiled_); }
  // Whether the inputs of a call share memory as those that it was compiled with.
  bool admits(const std::vector<Ref>& values) const { return sharing_ == nullptr || sharing_->holds(values, inputs_); }
  // If it throws, `failure` holds what is known of the failed node.
  void run(const std::vector<Ref>& values, GraphOutputs* outputs, graph::Failure* failure) const;
  // Whether the exception that is set comes from the graph. Errors in a custom backend must reach its author.
  bool has_raised_itself() const;
  // Version counters of the inputs; empty: an input has none.
  std::vector<uint32_t> versions(const std::vector<Ref>& values) const;

  const graph::Program& program() const { return *program_; }
  graph::Program& program() { return *program_; }
  const GraphFacts& facts() const { return facts_; }
  const std::vector<const lift::Source*>& input_sources() const { return input_sources_; }
  // numpy raises where it would warn: the call then falls back to eager, and warns where the program does.
  void raise_numpy_warnings() { raises_numpy_warnings_ = true; }

 private:
  std::vector<uint32_t> constants_before(const RunnerChoice& choice, const std::vector<Ref>& values) const;
  void call_backend(PyObject* const* arguments, size_t count, size_t flags, GraphOutputs* outputs) const;

  std::shared_ptr<graph::Program> program_;
  std::unique_ptr<graph::Replay> recorded_;
  Ref compiled_;  // null: recorded_ runs. With both, recorded_ runs if inputs have hooks, which a backend ignores
  std::vector<size_t> inputs_;
  bool contiguous_ = false;     // ... in the needed values
  bool boxed_ = false;          // compiled_ takes its inputs as one list, and may clear it
  bool grad_around_ = true;     // ... and is called in this grad mode
  bool without_modes_ = false;  // the effect of the thread's torch-function modes is in the graph
  bool raises_numpy_warnings_ = false;
  bool is_torch_backend_ = false;
  Py_ssize_t output_count_ = 0;
  std::unique_ptr<Sharing> sharing_;
  std::vector<const lift::Source*> input_sources_;
  std::unique_ptr<const SymbolicInputs> symbolic_;  // how compiled_ is called; null: as recorded_
  GraphFacts facts_;
};

}  // namespace alternator::backend
