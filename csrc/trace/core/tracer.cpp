#include "trace/core/tracer.h"

#include "fake/functorch_state.h"
#include "graph/record/torch_warnings.h"
#include "interpreter/capture.h"
#include "interpreter/frame_values.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/decimal_contexts.h"
#include "lift/lifting/functions.h"
#include "lift/lifting/iterators.h"
#include "lift/lifting/lazy_objects.h"
#include "lift/lifting/mentioned_names.h"
#include "lift/lifting/unspecialized.h"
#include "trace/calls/handlers.h"
#include "trace/calls/markers.h"
#include "trace/calls/natives.h"
#include "trace/core/fill_frames.h"
#include "trace/core/frame_access.h"
#include "trace/core/frame_evaluator.h"
#include "trace/core/trace_scope.h"
#include "trace/core/tracing.h"
#include "trace/core/user_lines.h"
#include "trace/higher_order/autograd_functions.h"
#include "trace/higher_order/functorch.h"
#include "trace/numpy/array_nodes.h"
#include "trace/numpy/concrete_arrays.h"
#include "trace/opcodes/class_creation.h"
#include "trace/opcodes/items.h"
#include "trace/opcodes/raised_exceptions.h"
#include "trace/soundness/address_identity.h"
#include "trace/soundness/finalizers.h"
#include "trace/soundness/observable_failures.h"
#include "trace/stdlib/context_variables.h"
#include "trace/stdlib/decimals.h"
#include "trace/stdlib/library_functions.h"
#include "trace/stdlib/lru_caches.h"
#include "trace/stdlib/optree.h"
#include "trace/stdlib/output_effects.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/symbolic/deferred_values.h"
#include "trace/symbolic/speculated_checks.h"
#include "trace/torch/flag_calls.h"
#include "trace/torch/grad_mode_blocks.h"
#include "trace/torch/random_generators.h"
#include "trace/torch/scoped_modes.h"
#include "trace/torch/tensor_hooks.h"
#include "trace/torch/torch_function_methods.h"
#include "trace/torch/torch_function_modes.h"

#include <algorithm>

namespace alternator::trace {

uint64_t Tracer::break_every = 0;

Tracer* Tracer::current() { return current_tracer; }

void stop(report::Reason reason, std::string context) { throw Stop{reason, std::move(context)}; }

int init_trace() {
  if (const char* every = std::getenv("ALTERNATOR_BREAK_EVERY"))
    Tracer::break_every = std::strtoull(every, nullptr, 10);
  if (init_identity() < 0 || init_deferred_random() < 0 || init_effects() < 0 || init_symbol_hooks() < 0 ||
      init_modes() < 0 || init_hooks() < 0)
    return -1;
  return lift::init_lazy();
}

// --- one trace --------------------------------------------------------------------------------------------

Tracer::Tracer(TraceOptions given)
    : options(std::move(given)),
      tree(std::make_unique<lift::SourceTree>()),
      session(fake::Options{fake::RealTensors::Refuse, /*copy_attributes=*/false}),
      lifter(*tree, session),
      recorder(session, traced_stack(*this)),
      handlers(Handlers::table()),
      identities(std::make_unique<AddressIdentities>()),
      frames(std::make_unique<FrameAccess>(*this)),
      exceptions(std::make_unique<RaisedExceptions>(*this)),
      classes(std::make_unique<ClassCreation>(*this)),
      marks(std::make_unique<GraphMarks>(*this)),
      library(std::make_unique<LibraryFunctions>(*this)),
      lru_caches(std::make_unique<LruCaches>(*this)),
      output(std::make_unique<OutputEffects>(*this)),
      context_variables(std::make_unique<ContextVariables>(*this)),
      decimals(std::make_unique<Decimals>(*this)),
      optree(std::make_unique<Optree>(*this)),
      torch_functions(std::make_unique<TorchFunctionMethods>(*this)),
      function_modes(std::make_unique<TorchFunctionModes>(*this)),
      scopes(std::make_unique<ScopedModes>(*this)),
      flags(std::make_unique<FlagCalls>(*this)),
      generators(std::make_unique<RandomGenerators>(*this)),
      hooks(std::make_unique<TensorHooks>(*this)),
      autograd_functions(std::make_unique<AutogradFunctions>(*this)),
      functorch(std::make_unique<Functorch>(*this)),
      arrays(std::make_unique<ConcreteArrays>(*this)),
      array_nodes(std::make_unique<ArrayNodes>(*this)),
      deferred(std::make_unique<DeferredValues>(*this)),
      checks(std::make_unique<SpeculatedChecks>(*this)),
      backed(std::make_unique<BackedNumbers>(*this)),
      finalizers(std::make_unique<Finalizers>(*this)) {
  Natives::table();
  find_marked_functions();
  load_function_modes();
  load_hooks();
  recorder.refuse_symbolic_generators();
  recorder.capture_unbacked(options.captured);
  if (Borrowed list = recorded_warnings()) lifter.withhold(list);
  forget_identities();
  output->outermost = cpython::current_frame(PyThreadState_Get());
  tree->locate = [of = tree.get(), below = cpython::current_frame(PyThreadState_Get())] { locate_guard(*of, below); };
  lifter.untraced = [this](const std::function<void()>& work) {
    std::optional<Paused> paused;
    if (current_tracer == this) paused.emplace(*this);
    work();
  };
  recorder.on_override = [this](Borrowed types, Borrowed arguments, Borrowed keywords) {
    torch_functions->note_override(types, arguments, keywords);
  };
  if (options.unspecialized != nullptr) {
    lifter.unspecialized->texts = options.unspecialized.get();
    lifter.unspecialized->on_lift = [this] { recorder.expect_numbers(); };
  }
  lifter.decimals->on_use = [this] { decimals->use(); };
  lifter.on_tensor = [this](const at::Tensor& fake, lift::Source* source, fake::SymbolicGeometry geometry) {
    Ref label = checked(PyUnicode_FromString(source->text().c_str()));
    recorder.declare(fake, label, checked(PyLong_FromUnsignedLong(source->id)));
    if (!geometry.empty()) recorder.note_geometry(fake, std::move(geometry));
  };
  if (options.dynamism != nullptr) backed->begin();
}

Tracer::~Tracer() {
  context_variables->leave();
  exceptions->end_generators();
  if (exceptions->exit) exceptions->clear_frames(exceptions->exit);
  for (const Ref& frame : exceptions->abandoned_frames) exceptions->clear_frame(frame);
}

void Tracer::check_taint(PyObject* value) {
  if (value == nullptr || result.stopped || !taint->is_preexisting(value)) return;
  if (lifter.known(value) != nullptr || lifter.functions->is_code_constant(value)) return;
  stop_here(report::Reason::internal, "taint: a pre-existing object was not lifted: " + lift::show(value));
}

Verdict Tracer::begin_instruction(const Position& position) {
  if (separates && !result.stopped && is_to_separate(recorder.program())) [[unlikely]] {
    stop_here(report::Reason::torch_call,
              "what may fail inside a `try`, and irreversible mutations, run in separate segments");
    return Verdict::kFail;
  }
  if ((finalizers->watches || finalizers->shadows_seen != lifter.containers->shadows().size()) &&
      !finalizers->check_all(position)) [[unlikely]]
    return Verdict::kFail;
  current_frame = position.frame;
  current_index = position.next_index();
  if (active_.empty() || active_.back().frame != current_frame) {
    // An outer frame continues: those above it have ended.
    size_t at = active_.size();
    while (at > 0 && active_[at - 1].frame != current_frame) at--;
    if (at > 0) {
      active_.resize(at);
    } else {
      active_.push_back({current_frame, {}});
    }
  }
  path_ = path_ * 31 + static_cast<uint64_t>(cpython::code_of(current_frame)->co_firstlineno) * 4099 +
          static_cast<uint64_t>(current_index);
  active_.back().at = {++instructions_, path_};
  if (!frames->held_frames.empty() && !frames->may_finalize(position)) [[unlikely]] {
    stop_here(report::Reason::last_reference, "generator");
    return Verdict::kFail;
  }
  active_.back().transformed = functorch->transformed;
  active_.back().moded = function_modes->foreign > 0;
  if (until_ != nullptr && until_->number == instructions_ && until_->path == path_) [[unlikely]] {
    control.watch = &watch_;
    return Verdict::kCapture;
  }
  if (options.may_break && instructions_ == break_every) [[unlikely]] {
    stop_here(report::Reason::forced, {});
    return Verdict::kFail;
  }
  return Verdict::kGo;
}

void Tracer::prepare(const Chain& chain, const BreakPoint* until) {
  graph::forget_warnings();
  begin_separation(options.separates, chain, options.until_node);
  if (lift::Taint::wanted()) {
    taint = std::make_unique<lift::Taint>();
    taint->collect(chain.back().function);
    each_value(chain, [&](const Ref& value) {
      if (value) taint->collect(value);
    });
  }
  each_value(chain, [&](const Ref& value) {
    if (value && (PyGen_CheckExact(value.get()) || PyCoro_CheckExact(value.get())))
      exceptions->note_generator(value, true);
  });
  until_ = until;
  watch_.chain = &result.cut;
  watch_.below = cpython::current_frame(PyThreadState_Get());
  caller_ = cpython::current_frame(PyThreadState_Get());
  exceptions->handled_before = Ref::steal(PyErr_GetHandledException());
  exceptions->callers_exception = Ref::steal(PyErr_GetHandledException());
}

// The frames have returned, raised, stopped or been cut.
void Tracer::end_frames(Tracing& tracing) {
  const bool was_cut = control.capturing == &result.cut;
  if (was_cut) {
    const auto is_cut = [&](const Ref& frame) {
      return std::ranges::any_of(result.cut,
                                 [&](const FrameState& state) { return state.frame_object.get() == frame.get(); });
    };
    std::erase_if(exceptions->abandoned_frames, is_cut);
    finish_capture();
  }
  // The default loop may have raised it without a call of raising().
  if (!was_cut && !abandoned() && !result.value) (void)tracing.status([&] { exceptions->raising(); });
  if (was_cut && !result.value && !abandoned()) {
    // All frames are in `cut`. The exceptions that their callers handle are not values of theirs.
    for (FrameState& state : result.cut) {
      if (state.saved_exception_slot >= 0)
        state.stack[static_cast<size_t>(state.saved_exception_slot)] = Ref::share(Py_None);
    }
  } else if (abandoned() || was_cut) {
    // Native code swallowed the exception that unwinds a cut: the state of the frames is unknown.
    {
      const Discarding discarding;
      result.value.reset();
      PyErr_Clear();
    }
    finish_abandoning();
    result.cut.clear();
  } else {
    if (!result.value) result.value = exceptions->take_exit();
    if (!result.value) result.set_stopped(report::Reason::raises, {});
  }
}

// A trace that would leave behind what its residual program cannot establish is discarded.
void Tracer::check_exit(const graph::Ambient& entry, bool leaves_modes) {
  if (!result.stopped && output->shown_changed()) {
    result.set_stopped(report::Reason::tensor_text, "it is mutated, or gets a hook, after it was shown");
    result.discard();
  }
  if (!result.stopped && arrays->shared_changed()) {
    result.stopped = deferred->event;
    result.break_points = deferred->points;
    result.discard();
  }
  // A mode is an object that is referenced elsewhere; it is not reconstructed.
  const OpenScope* const scope_left = scopes->open();
  if ((result.exit.ambient.inference != entry.inference || leaves_modes || scope_left != nullptr) && !result.stopped) {
    result.set_stopped(report::Reason::native_call, "the call leaves a mode behind");
    if (leaves_modes) result.break_points = function_modes->points;
    if (scope_left != nullptr) result.break_points = scope_left->points;
    result.discard();
  }
  if (!result.stopped && fake::TransformState::now() != functorch->transforms_before) {
    result.set_stopped(report::Reason::native_call, "the call leaves a functorch transform behind");
    result.discard();
  }
}

TraceResult& Tracer::run(const Chain& chain, const BreakPoint* until) {
  if (const char* what = active_callbacks()) {
    result.set_stopped(report::Reason::callbacks, what);
    return result;
  }
  prepare(chain, until);
  {
    TraceScope scope(*this);
    const graph::Ambient entry = graph::Ambient::now();
    functorch->transforms_before = fake::TransformState::now();
    const int nesting = flags->nesting_before = fake::autocast_nesting();
    const fake::CastSettings casts = fake::CastSettings::now();
    Watch* const watch = control.watch;
    Tracing tracing(*this);
    Chain filled(chain.size());
    recorder.begin();
    auto begin = [&] {
      if (options.has_modes) function_modes->take();
      note_open_blocks(chain, recorder);
      fill_frames(*this, chain, &filled);
    };
    if (tracing.status(begin) == 0) result.value = continue_chain(filled, run_traced);
    control.watch = watch;
    const auto finish = [&] {
      decimals->finish();
      lifter.iterators->finish();
    };
    if (!abandoned()) (void)tracing.status(finish);
    context_variables->leave();
    result.exit.ambient = graph::Ambient::now();
    result.exit.autocast_nesting = fake::autocast_nesting() - nesting;
    if (const fake::CastSettings now = fake::CastSettings::now(); !(now == casts)) result.exit.casts = now;
    const bool leaves_modes = !function_modes->note_exit();
    end_frames(tracing);
    lift::guard_names_in(lifter, exceptions->raised_texts);
    check_exit(entry, leaves_modes);
    recorder.end();
  }
  if (!result.value) PyErr_Clear();
  return result;
}

}  // namespace alternator::trace
