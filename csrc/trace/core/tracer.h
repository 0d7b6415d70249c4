// One trace: a program run on lifted values, its torch calls recorded.
#pragma once

#include "interpreter/control.h"
#include "trace/torch/torch_function_modes.h"

#include "fake/functorch_state.h"
#include "fake/thread_state.h"
#include "fake/unbacked_symbol.h"
#include "graph/record/ambient_state.h"
#include "graph/record/recorder.h"
#include "graph/record/torch_types.h"
#include "lift/lifting/lazy_objects.h"
#include "lift/lifting/lifter.h"
#include "lift/lifting/taint.h"
#include "lift/sources/numpy_types.h"
#include "report/event.h"
#include "trace/core/paused.h"
#include "trace/core/trace_options.h"
#include "trace/core/trace_result.h"
#include "trace/soundness/address_identity.h"
#include "trace/stdlib/output_effects.h"
#include "trace/symbolic/deferred_values.h"

#include <functional>
#include <memory>
#include <optional>
#include <unordered_set>

namespace alternator::trace {

using lift::lazy_type;
using lift::LazyObject;

struct AddressIdentities;
class ArrayNodes;
class AutogradFunctions;
class BackedNumbers;
class ClassCreation;
class ConcreteArrays;
class ContextVariables;
class Decimals;
class DeferredValues;
class Finalizers;
class FlagCalls;
class FrameAccess;
class Functorch;
class Handlers;
class GraphMarks;
class LibraryFunctions;
class LruCaches;
class Optree;
class OutputEffects;
class RaisedExceptions;
class RandomGenerators;
class ScopedModes;
class SpeculatedChecks;
class TensorHooks;
class TorchFunctionMethods;
class TorchFunctionModes;
struct Tracing;

class Tracer {
 public:
  explicit Tracer(TraceOptions given);
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  static Tracer* current();  // of this thread; null while native torch code runs

  // Runs a stopped chain of frames (a function that has not started is one) on the trace's own frames, up to `until` if
  // given. The result belongs to the tracer: its objects die with the trace.
  TraceResult& run(const Chain& chain, const BreakPoint* until);

  // Debugging: a trace that may break breaks before its n-th instruction at the latest. 0: only where it must.
  // Initialized from the environment variable ALTERNATOR_BREAK_EVERY.
  static uint64_t break_every;

  const TraceOptions options;
  TraceResult result;
  std::unique_ptr<lift::Taint> taint;  // if the sanitizer is on

  std::unique_ptr<lift::SourceTree> tree;
  fake::Session session;
  lift::Lifter lifter;
  graph::Recorder recorder;

  const Handlers& handlers;
  // The features, each of which owns its state.
  const std::unique_ptr<AddressIdentities> identities;
  const std::unique_ptr<FrameAccess> frames;
  const std::unique_ptr<RaisedExceptions> exceptions;
  const std::unique_ptr<ClassCreation> classes;
  const std::unique_ptr<GraphMarks> marks;
  const std::unique_ptr<LibraryFunctions> library;
  const std::unique_ptr<LruCaches> lru_caches;
  const std::unique_ptr<OutputEffects> output;
  const std::unique_ptr<ContextVariables> context_variables;
  const std::unique_ptr<Decimals> decimals;
  const std::unique_ptr<Optree> optree;
  const std::unique_ptr<TorchFunctionMethods> torch_functions;
  const std::unique_ptr<TorchFunctionModes> function_modes;
  const std::unique_ptr<ScopedModes> scopes;
  const std::unique_ptr<FlagCalls> flags;
  const std::unique_ptr<RandomGenerators> generators;
  const std::unique_ptr<TensorHooks> hooks;
  const std::unique_ptr<AutogradFunctions> autograd_functions;
  const std::unique_ptr<Functorch> functorch;
  const std::unique_ptr<ConcreteArrays> arrays;
  const std::unique_ptr<ArrayNodes> array_nodes;
  const std::unique_ptr<DeferredValues> deferred;
  const std::unique_ptr<SpeculatedChecks> checks;
  const std::unique_ptr<BackedNumbers> backed;
  const std::unique_ptr<Finalizers> finalizers;

  // How often the program has queried grad mode, or the requires_grad of a tensor that it made.
  size_t autograd_queries = 0;
  std::vector<Ref> keep_alive;

  // An instruction begins. kCapture: the trace is to be cut here.
  Verdict begin_instruction(const Position& position);
  uint64_t instructions() const { return instructions_; }
  bool has_lazy_on_stack() const { return lazy_on_stack_ || lifter.lazy->has_open(); }
  void note_lazy_on_stack() { lazy_on_stack_ = true; }
  // The frame whose result is that of the trace.
  bool is_outermost(cpython::Frame* frame) const { return frame->previous == caller_; }
  // The sanitizer: a pre-existing object that was not lifted is a bug in the tracer.
  void check_taint(PyObject* value);
  // Records why the trace ends here and sets the exception that unwinds it.
  void stop_here(report::Reason reason, std::string context);

  // Inside of a functorch transform, or of a branch that is being traced.
  bool is_transformed() const;

  // The `left` innermost frames are excluded as break points.
  std::vector<BreakPoint> points_here(size_t left = 0) const;
  report::Break event_here(report::Reason reason, std::string context, size_t left = 0) const;
  // The instruction that began last; null: none has. Its frame may have been deallocated.
  const BreakPoint* last_point() const { return active_.empty() ? nullptr : &active_.back().at; }

  cpython::Frame* current_frame = nullptr;  // the user's position, for guards and breaks
  int current_index = 0;
  cpython::Frame* caller() const { return caller_; }  // the frame that the trace runs under

 private:
  // The instruction that each active frame is in; frames that have ended may still be on top.
  struct Active {
    cpython::Frame* frame;
    BreakPoint at;
    bool transformed = false;  // it is inside a transform
    bool moded = false;        // ... inside a mode that the program has entered
  };
  bool may_be_cut_at(const Active& active) const;
  template <class Visit>
  void each_active(Visit&& visit) const;
  size_t library_methods_here() const;
  void note_refusal();
  void choose_break_points(report::Reason reason, bool of_text, size_t left);

  void prepare(const Chain& chain, const BreakPoint* until);
  void end_frames(Tracing& tracing);
  void check_exit(const graph::Ambient& entry, bool leaves_modes);

  std::vector<Active> active_;
  uint64_t instructions_ = 0, path_ = 0;
  const BreakPoint* until_ = nullptr;
  Watch watch_;
  bool lazy_on_stack_ = false;
  cpython::Frame* caller_ = nullptr;
};

// The check at this instruction is not speculated on any more.
void stop_speculating(Borrowed code, int index);
void forget_refuted_checks();

// A tracer whose objects are discarded at its end.
class OwnedTracer {
 public:
  explicit OwnedTracer(TraceOptions options) : tracer_(std::make_unique<Tracer>(std::move(options))) {}
  ~OwnedTracer() {
    const SavedError on_its_way;  // deallocating a trace's objects may clear the error indicator
    const Discarding discarding;
    tracer_.reset();
  }
  OwnedTracer(const OwnedTracer&) = delete;
  OwnedTracer& operator=(const OwnedTracer&) = delete;
  Tracer& operator*() { return *tracer_; }

 private:
  std::unique_ptr<Tracer> tracer_;
};

// Before anything is traced: resolves what these parts look up in modules, which may have to be imported.
void load_function_modes();
void load_hooks();

int init_trace();
int init_symbol_hooks();

}  // namespace alternator::trace
