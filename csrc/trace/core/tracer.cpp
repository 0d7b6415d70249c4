#include "trace/core/tracer.h"
#include "trace/core/frame_access.h"
#include "trace/core/user_lines.h"
#include "trace/higher_order/autograd_functions.h"
#include "trace/higher_order/functorch.h"
#include "trace/numpy/array_nodes.h"
#include "trace/numpy/concrete_arrays.h"
#include "trace/opcodes/class_creation.h"
#include "trace/opcodes/items.h"
#include "trace/opcodes/raised_exceptions.h"
#include "trace/soundness/address_identity.h"
#include "trace/stdlib/context_variables.h"
#include "trace/stdlib/decimals.h"
#include "trace/stdlib/library_functions.h"
#include "trace/stdlib/optree.h"
#include "trace/stdlib/output_effects.h"
#include "trace/symbolic/deferred_values.h"
#include "trace/symbolic/speculated_checks.h"
#include "trace/symbolic/unbacked_arithmetic.h"
#include "trace/torch/flag_calls.h"
#include "trace/torch/random_generators.h"
#include "trace/torch/torch_function_methods.h"
#include "trace/torch/torch_function_modes.h"

#include "trace/soundness/finalizers.h"
#include "trace/soundness/observable_failures.h"

#include "fake/saved_hooks.h"
#include "fake/thread_state.h"
#include "graph/record/torch_types.h"
#include "interpreter/capture.h"
#include "interpreter/continuation_calls.h"
#include "interpreter/frame_hook.h"
#include "interpreter/frame_values.h"
#include "interpreter/loop.h"
#include "lift/lifting/cells.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/decimal_contexts.h"
#include "lift/lifting/functions.h"
#include "lift/lifting/lazy_objects.h"
#include "lift/lifting/mentioned_names.h"
#include "lift/sources/python_twins.h"
#include "py/gc.h"
#include "py/lasting.h"
#include "trace/calls/handlers.h"
#include "trace/calls/markers.h"
#include "trace/calls/native_reads.h"
#include "trace/calls/natives.h"
#include "trace/core/tracing.h"
#include "trace/torch/grad_mode_blocks.h"
#include "trace/torch/scoped_modes.h"
#include "trace/torch/tensor_hooks.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <algorithm>
#include <cstring>

namespace alternator::trace {

static thread_local Tracer* current_tracer = nullptr;

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

Tracer::Tracer()
    : tree(std::make_unique<lift::SourceTree>()),
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
      finalizers(std::make_unique<Finalizers>(*this)) {
  Natives::table();
  load_library();
  load_function_modes();
  load_overrides();
  load_flags();
  load_generators();
  load_loops();
  load_hooks();
  recorder.refuse_symbolic_generators();
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
  lifter.decimals->on_use = [this] { decimals->use(); };
  lifter.on_tensor = [this](const at::Tensor& fake, lift::Source* source) {
    Ref label = checked(PyUnicode_FromString(source->text().c_str()));
    recorder.declare(fake, label, checked(PyLong_FromUnsignedLong(source->id)));
  };
}

Tracer::~Tracer() {
  context_variables->leave();
  exceptions->end_generators();
  if (exceptions->exit) exceptions->clear_frames(exceptions->exit);
  for (const Ref& frame : exceptions->abandoned_frames) exceptions->clear_frame(frame);
}

Paused::Paused(Tracer& tracer) : tracer_(&tracer) {
  control.evaluator = nullptr;
  current_tracer = nullptr;
}
Paused::~Paused() {
  control.evaluator = evaluate_traced;
  current_tracer = tracer_;
}

namespace {

// Frames end at their current instruction.
struct Discarded : Concrete {
  static constexpr bool kObserves = true;
  Verdict at_boundary(const Position&) { return Verdict::kGo; }
};

PyObject* evaluate_discarded(PyThreadState* ts, cpython::Frame* frame, int throwflag) {
  const bool closing = throwflag != 0 && PyErr_ExceptionMatches(PyExc_GeneratorExit) != 0;
  Discarded semantics;
  PyObject* result = ::alternator::run(ts, frame, throwflag, semantics);
  if (result != nullptr) return result;
  PyErr_Clear();
  if (!closing) return Py_NewRef(Py_None);
  PyErr_SetNone(PyExc_GeneratorExit);
  return nullptr;
}

}  // namespace

static PyObject* discard_while_unwinding(PyThreadState* ts, cpython::Frame* frame, int throwflag) {
  Chain* const capturing = std::exchange(control.capturing, nullptr);
  const bool abandoning = std::exchange(control.abandoning, true);
  PyObject* result = evaluate_discarded(ts, frame, throwflag);
  control.capturing = capturing;
  control.abandoning = abandoning;
  return result;
}

static PyObject* run_traced(PyThreadState* ts, cpython::Frame* frame, int throwflag, const Entry& entry) {
  Tracer* tracer = current_tracer;
  if (tracer == nullptr) return run_default(ts, frame, throwflag);
  PyObject* generator =
      cpython::owned_by_generator(frame) ? reinterpret_cast<PyObject*>(cpython::generator_of(frame)) : nullptr;
  // Torch functions reached through type slots are recorded like those reached by CALL.
  Tracing tracing(*tracer);
  PyObject* result = ::alternator::run(ts, frame, throwflag, tracing, entry);
  if (generator != nullptr) tracer->exceptions->note_generator(generator);
  return result;
}

// The code object of torch.Tensor.__torch_function__.
static PyObject* torch_function_code() {
  static constinit Lasting<PyObject*> code;
  return code.get([] {
    PyObject* tensor = reinterpret_cast<PyObject*>(graph::torch_types().tensor);
    Ref method = checked(PyObject_GetAttrString(tensor, "__torch_function__"));
    Ref function = PyMethod_Check(method.get()) ? Ref::share(PyMethod_GET_FUNCTION(method.get())) : std::move(method);
    // Not as an attribute: reading __code__ raises an audit event, and the frame of an audit hook would call this
    // again.
    return Py_NewRef(PyFunction_Check(function.get()) ? PyFunction_GET_CODE(function.get()) : Py_None);
  });
}

static bool is_dead_reference(PyObject* object) {
  if (object == nullptr || !PyWeakref_CheckRef(object)) return false;
  auto* reference = reinterpret_cast<PyWeakReference*>(object);
  return reference->wr_object == Py_None && reference->wr_callback == nullptr;
}

// Exceptions in a frame that an object's finalization starts are reported as unraisable, and lost.
static bool reports_finalization(cpython::Frame* frame) {
  PyCodeObject* code = cpython::code_of(frame);
  for (int i = 0; i < std::min(code->co_argcount, 2); i++) {  // a method receives it second
    if (is_dead_reference(frame->localsplus[i])) return true;
  }
  if ((code->co_flags & CO_VARARGS) == 0) return false;
  PyObject* rest = frame->localsplus[code->co_argcount + code->co_kwonlyargcount];
  return rest != nullptr && PyTuple_CheckExact(rest) && PyTuple_GET_SIZE(rest) > 0 &&
         is_dead_reference(PyTuple_GET_ITEM(rest, PyTuple_GET_SIZE(rest) - 1));
}

// The callback of a dead weak reference that untraced code created, as in torch's tables of fake tensors. It is not
// part of the program.
static bool is_foreign_callback(const Tracer& tracer, cpython::Frame* frame) {
  PyCodeObject* code = cpython::code_of(frame);
  PyObject* first = code->co_argcount > 0 ? frame->localsplus[0] : nullptr;
  if (!is_dead_reference(first)) return false;
  Borrowed function = reinterpret_cast<PyObject*>(cpython::function_of(frame));
  // A method of the reference itself is called by the program.
  PyObject* method = _PyType_Lookup(Py_TYPE(first), code->co_name);
  return method != function.get() && tracer.lifter.known(function) == nullptr && !tracer.lifter.made_here(function);
}

// Native code that calls one of these reads the concrete value of the result.
static bool gives_digits(PyCodeObject* code) {
  static constexpr const char* kNames[] = {"__index__", "__len__",   "__length_hint__", "__bool__",
                                           "__int__",   "__float__", "__complex__",     "__hash__"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](const char* name) { return PyUnicode_CompareWithASCIIString(code->co_name, name) == 0; });
}

// An unbacked symbol, or a container of one.
static bool is_unbacked_symbol(const Tracer& tracer, Borrowed result) {
  if (Py_IS_TYPE(result.get(), &fake::int_symbol_type)) integers_given()++;
  return fake::is_symbol(result) ||
         ((PyTuple_Check(result.get()) || PyList_CheckExact(result.get())) && may_hold_symbol(tracer, result));
}

// Checks a value before native code inspects it, as the arguments of a native call are checked.
static void check_given(Tracer& tracer, Borrowed value, const char* what, int depth = 0) {
  constexpr int kDeepest = 3;
  check_use(tracer, value, what);
  if (depth == kDeepest || !(PyTuple_CheckExact(value.get()) || PyList_CheckExact(value.get()))) return;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value.get()); i++)
    check_given(tracer, PySequence_Fast_GET_ITEM(value.get(), i), what, depth + 1);
}

// A frame that native code starts.
static PyObject* run_for_native(PyThreadState* ts, cpython::Frame* frame, int throwflag) {
  const Ref code = Ref::share(reinterpret_cast<PyObject*>(cpython::code_of(frame)));
  const bool read = Reading::now(), added = Reading::adds();
  const bool loses_errors = throwflag == 0 && reports_finalization(frame);
  Ref result;
  {
    const Reading of_its_own(false);
    result = Ref::steal(run_traced(ts, frame, throwflag, {}));
  }
  if (!result && loses_errors && capture_in_flight()) {
    PyErr_Clear();  // the next frame to run detects the capture
    return Py_NewRef(Py_None);
  }
  Tracer* tracer = current_tracer;
  if (!result && tracer != nullptr && !tracer->stopped && !capture_in_flight() && lift::is_stand_in(code)) {
    PyErr_Clear();  // the frame of the stand-in is in the traceback
    tracer->stop_here(report::Reason::native_call, "a function that native code calls, and that fails");
  }
  if (!result || tracer == nullptr || tracer->stopped) return result.release();
  const char* name = PyUnicode_AsUTF8(code.as<PyCodeObject>()->co_name);
  try {
    if (is_deferred_string(result)) stop(report::Reason::tensor_text, name);
    const bool unknown = is_unbacked_symbol(*tracer, result);
    if (unknown && (read || (fake::is_symbol(result) && gives_digits(code.as<PyCodeObject>()))))
      stop(report::Reason::unknown_number, name);
    const bool is_hash = strcmp(name, "__hash__") == 0;  // a key: it may depend on an address
    if (read && !is_hash) check_given(*tracer, result, name);
    if (!read && added && !unknown) check_use(*tracer, result, name);
    return result.release();
  } catch (const PyError&) {  // the error indicator is set
  } catch (const Stop& stop) {
    tracer->stop_here(stop.reason, stop.context);
  }
  return nullptr;
}

// The rest of an instruction that began before the trace.
static Ref call_traced(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  if (current_tracer == nullptr) return call_natively(callable, arguments, positional, keyword_names);
  return Tracing(*current_tracer).call(callable, arguments, positional, keyword_names);
}

// ts->tracing when the trace began: how deeply calls of audit hooks and trace functions (sys.addaudithook,
// sys.settrace) were nested.
static thread_local int hook_depth = 0;

PyObject* evaluate_traced(PyThreadState* ts, cpython::Frame* frame, int throwflag) {
  // Audit hooks and trace functions are not part of the program; they also see what the tracer itself does.
  const bool in_hook = ts->tracing > hook_depth;
  if (current_tracer != nullptr && throwflag == 0 && (in_hook || is_foreign_callback(*current_tracer, frame))) {
    const Paused paused(*current_tracer);
    return run_default(ts, frame, throwflag);
  }
  // Frames of the trace are unwinding, and dropped the last reference to a generator or coroutine: what CPython runs to
  // close it is not part of the program.
  if (capture_in_flight()) return discard_while_unwinding(ts, frame, throwflag);
  // What torch does for subclasses inside a recorded call is part of that call.
  if (current_tracer != nullptr && current_tracer->recorder.is_silent() &&
      reinterpret_cast<PyObject*>(cpython::code_of(frame)) == torch_function_code()) {
    const Paused paused(*current_tracer);
    return run_default(ts, frame, throwflag);
  }
  return run_for_native(ts, frame, throwflag);
}

Discarding::Discarding() : abandoning_(control.abandoning), evaluator_(control.evaluator) {
  acquire_hook();
  control.evaluator = evaluate_discarded;
  control.abandoning = true;
}

Discarding::~Discarding() {
  control.abandoning = abandoning_;
  control.evaluator = evaluator_;
  release_hook();
}

void Tracer::check_taint(PyObject* value) {
  if (value == nullptr || stopped || !taint->is_preexisting(value)) return;
  if (lifter.known(value) != nullptr || lifter.functions->is_code_constant(value)) return;
  stop_here(report::Reason::internal, "taint: a pre-existing object was not lifted: " + lift::show(value));
}

namespace {

// Thread state that a trace changes, and restores.
class TraceScope {
 public:
  explicit TraceScope(Tracer& tracer) : tracer_(tracer) {
    // A profiler or debugger sees the program run, not the trace of it.
    PyThreadState_EnterTracing(PyThreadState_Get());
    hook_depth_before_ = std::exchange(hook_depth, PyThreadState_Get()->tracing);
    current_tracer = &tracer;
    continuation_call = call_traced;
    control.evaluator = evaluate_traced;
    Reading::later() = false;
    acquire_hook();
  }
  ~TraceScope() {
    if (tracer_.recorder.watched_flags()) tracer_.flags_before->apply();
    PyThreadState_LeaveTracing(PyThreadState_Get());
    hook_depth = hook_depth_before_;
    release_hook();
    continuation_call = nullptr;
    control.evaluator = nullptr;
    current_tracer = nullptr;
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Tracer& tracer_;
  const WithoutCollector without_collector_;
  const lift::NumpyErrors numpy_errors_;
  const Reading reading_{false};
  fake::ThreadState thread_;
  const fake::SavedHooksRest hooks_rest_;
  int hook_depth_before_;
};

}  // namespace

// User code that torch calls while operations run: it would see the fake tensors of a trace. And while torch functions
// are disabled, no call would reach the recording mode.
static const char* active_callbacks() {
  if (c10::impl::TorchDispatchModeTLS::stack_len() > 0) return "a torch-dispatch mode is active";
  for (int64_t i = 0; i < at::impl::PythonTorchFunctionTLS::stack_len(); i++) {
    PyTypeObject* type = Py_TYPE(at::impl::PythonTorchFunctionTLS::get_stack_at(i)->ptr(getPyInterpreter()));
    // A default-device mode only adds an argument.
    if (!is_device_context(type) && !graph::is_recording_mode(type)) return "a torch-function mode is active";
  }
  if (fake::transform_depth() != 0) return "a functorch transform is active";
  if (torch::autograd::ForwardADLevel::try_get_by_idx(0)) return "a level of forward-mode differentiation is active";
  if (torch::jit::tracer::isTracing()) return "torch.jit.trace is running";  // it would record the fake tensors
  if (at::impl::torch_function_all_disabled())
    return "torch functions are switched off (torch._C.DisableTorchFunction)";
  return nullptr;
}

// --- from a stopped chain to a trace -----------------------------------------------------------------------

void Tracer::fill(const Chain& chain, Chain* filled) {
  Py_ssize_t slot = 0;
  auto source = [&](Borrowed name) { return tree->slot(slot, name); };
  // A slot may hold the last reference to its value: observable finalization is detected here, or by the guard in a
  // later call.
  auto watch = [&](Borrowed value, lift::Source* place) {
    finalizers->watch_slot(value);
    if (!holds_observably_finalized(value)) tree->guard(place, {lift::GuardKind::kUnobserved});
  };
  // In the order of each_value().
  for (size_t i = chain.size(); i-- > 0;) {
    const FrameState& from = chain[i];
    FrameState& to = (*filled)[i] = shape_of(from);
    auto* code = from.code.as<PyCodeObject>();
    const bool outermost = i + 1 == chain.size();
    auto unnamed = [&](const char* what) {
      return tree->slot(slot, checked(PyUnicode_FromFormat("the %s of %U", what, code->co_name)));
    };
    const bool begun = from.next > 0 || from.continuation != Continuation::kNone;
    to.function = lifter.lift(from.function, outermost ? tree->function() : unnamed("function"));
    if (!outermost) slot++;
    if (begun) lifter.functions->note_code(from.code);
    for (size_t j = 0; j < from.locals.size(); j++, slot++) {
      if (!from.locals[j]) continue;
      Borrowed value = from.locals[j], name = PyTuple_GET_ITEM(code->co_localsplusnames, static_cast<Py_ssize_t>(j));
      const bool is_cell = begun && PyCell_Check(value.get()) &&
                           (PyBytes_AS_STRING(code->co_localspluskinds)[j] & (CO_FAST_CELL | CO_FAST_FREE)) != 0;
      if (begun && !is_cell) watch(value, source(name));
      to.locals[j] = is_cell ? lifter.cells->use(value, source(name)) : lifter.lazy->make(value, source(name));
    }
    // If the rest of the interrupted instruction inspects its operands, they must be lifted.
    const bool looks = from.continuation != Continuation::kNone && from.continuation != Continuation::kValue &&
                       from.continuation != Continuation::kDiscard;
    for (size_t j = 0; j < from.stack.size(); j++, slot++) {
      if (!from.stack[j]) continue;
      // The exception that the callers handle belongs to the thread, and is put there when the frame is filled.
      if (static_cast<int>(j) == from.saved_exception_slot) {
        to.stack[j] = Ref::share(Py_None);
        continue;
      }
      const bool is_operand = looks && j + static_cast<size_t>(from.operands) >= from.stack.size();
      lift::Source* place = unnamed(("value stack[" + std::to_string(j) + "]").c_str());
      // Since 3.12 an inlined comprehension saves the cell of an outer variable there (LOAD_FAST_AND_CLEAR): it becomes
      // a local again, and cells in locals are not lazy values.
      if (PyCell_Check(from.stack[j].get())) {
        to.stack[j] = lifter.cells->use(from.stack[j], place);
        continue;
      }
      watch(from.stack[j], place);
      to.stack[j] = is_operand ? lifter.lift(from.stack[j], place) : lifter.lazy->make(from.stack[j], place);
      lazy_on_stack_ = lazy_on_stack_ || !is_operand;
      finalizers->stand_ins.push_back(to.stack[j].get());
    }
    // It is only compared with operands, or is the instance that __init__ initializes: a plain value is never either.
    if (from.first_argument && (begun || !outermost)) {
      to.first_argument = lift::is_plain(from.first_argument.get())
                              ? Ref::share(from.first_argument)
                              : lifter.lift(from.first_argument, unnamed("first argument"));
    }
    slot += 2;  // and the generator
    if (from.locals_mapping) {
      if ((code->co_flags & CO_OPTIMIZED) == 0) stop(report::Reason::native_call, "a class body");
      to.locals_mapping = lifter.lift(from.locals_mapping, unnamed("locals()"));
    }
    slot++;
    if (from.frame_object) to.frame_object = frames->stand_in_of_frame(from, unnamed("frame"));
    slot++;
    if (from.saved_exception_slot >= 0) {
      if (from.handled) {
        lift::Source* place = unnamed("exception");
        watch(from.handled, place);
        to.handled = lifter.lift(from.handled, place);
      }
      slot++;
    }
    if (from.generator) stop(report::Reason::native_call, "a generator that is running");
  }
}

Verdict Tracer::begin_instruction(const Position& position) {
  if (separates && !stopped && is_to_separate(recorder.program())) [[unlikely]] {
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
  if (may_break && instructions_ == break_every) [[unlikely]] {
    stop_here(report::Reason::forced, {});
    return Verdict::kFail;
  }
  return Verdict::kGo;
}

static bool lists(const Ref& table, Borrowed callable) {
  return table && contains(table, checked(PyLong_FromVoidPtr(callable.get()))).value();
}

bool GraphMarks::is_disallowed(Borrowed callable) {
  if (!disallowed_) disallowed_ = disallowed_in_graph();
  return lists(*disallowed_, callable);
}

bool GraphMarks::is_allowed_in_graph(Borrowed callable) {
  if (!allowed_) allowed_ = allowed_in_graph();
  return lists(*allowed_, callable);
}

Ref Tracer::run(const Chain& chain, const BreakPoint* until) {
  if (const char* what = active_callbacks()) {
    stopped = report::Break{report::Reason::callbacks, what, {}, 0};
    return {};
  }
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
  watch_.chain = &cut;
  watch_.below = cpython::current_frame(PyThreadState_Get());
  caller_ = cpython::current_frame(PyThreadState_Get());
  exceptions->handled_before = Ref::steal(PyErr_GetHandledException());
  Ref result;
  exceptions->callers_exception = Ref::steal(PyErr_GetHandledException());
  {
    TraceScope scope(*this);
    const graph::Ambient entry = graph::Ambient::now();
    functorch->transforms_before = fake::TransformState::now();
    const int nesting = flags->nesting_before = fake::autocast_nesting();
    const fake::CastSettings casts = fake::CastSettings::now();
    Watch* const watch = control.watch;
    Tracing tracing(*this);
    Chain frames(chain.size());
    recorder.begin();
    auto begin = [&] {
      if (has_modes) function_modes->take();
      note_open_blocks(chain, recorder);
      fill(chain, &frames);
    };
    if (tracing.status(begin) == 0) result = continue_chain(frames, run_traced);
    control.watch = watch;
    if (!abandoned()) (void)tracing.status([&] { decimals->finish(); });
    context_variables->leave();
    exit_state = graph::Ambient::now();
    exit_nesting = fake::autocast_nesting() - nesting;
    if (const fake::CastSettings now = fake::CastSettings::now(); !(now == casts)) exit_casts = now;
    const bool leaves_modes = !function_modes->note_exit();
    const bool was_cut = control.capturing == &cut;
    if (was_cut) {
      const auto is_cut = [&](const Ref& frame) {
        return std::ranges::any_of(cut,
                                   [&](const FrameState& state) { return state.frame_object.get() == frame.get(); });
      };
      std::erase_if(exceptions->abandoned_frames, is_cut);
      finish_capture();
    }
    // The default loop may have raised it without a call of raising().
    if (!was_cut && !abandoned() && !result) (void)tracing.status([&] { exceptions->raising(); });
    if (was_cut && !result && !abandoned()) {
      // All frames are in `cut`. The exceptions that their callers handle are not values of theirs.
      for (FrameState& state : cut) {
        if (state.saved_exception_slot >= 0)
          state.stack[static_cast<size_t>(state.saved_exception_slot)] = Ref::share(Py_None);
      }
    } else if (abandoned() || was_cut) {
      // Native code swallowed the exception that unwinds a cut: the state of the frames is unknown.
      {
        const Discarding discarding;
        result.reset();
        PyErr_Clear();
      }
      finish_abandoning();
      cut.clear();
    } else {
      if (!result) result = exceptions->take_exit();
      if (!result) {
        stopped = report::Break{report::Reason::raises, {}, {}, 0};
      }
    }
    lift::guard_names_in(lifter, exceptions->raised_texts);
    if (!stopped && output->shown_changed()) {
      stopped = report::Break{report::Reason::tensor_text, "it is mutated, or gets a hook, after it was shown", {}, 0};
      cut.clear();
      result.reset();
    }
    if (!stopped && arrays->shared_changed()) {
      stopped = deferred->event;
      break_points = deferred->points;
      cut.clear();
      result.reset();
    }
    // A mode is an object that is referenced elsewhere; it is not reconstructed.
    const OpenScope* const scope_left = scopes->open();
    if ((exit_state.inference != entry.inference || leaves_modes || scope_left != nullptr) && !stopped) {
      stopped = report::Break{report::Reason::native_call, "the call leaves a mode behind", {}, 0};
      if (leaves_modes) break_points = function_modes->points;
      if (scope_left != nullptr) break_points = scope_left->points;
      result.reset();
      cut.clear();
    }
    if (!stopped && fake::TransformState::now() != functorch->transforms_before) {
      stopped = report::Break{report::Reason::native_call, "the call leaves a functorch transform behind", {}, 0};
      result.reset();
      cut.clear();
    }
    recorder.end();
  }
  if (!result) PyErr_Clear();
  return result;
}

}  // namespace alternator::trace
