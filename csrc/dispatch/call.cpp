#include "dispatch/call.h"

#include "cpython/objects.h"
#include "dispatch/bind_arguments.h"
#include "dispatch/events.h"
#include "dispatch/resume_points.h"
#include "dispatch/stance.h"
#include "interpreter/capture.h"
#include "interpreter/frame_hook.h"
#include "interpreter/frame_values.h"
#include "interpreter/step.h"
#include "py/names.h"
#include "trace/calls/markers.h"
#include "trace/soundness/finalizers.h"

#include <algorithm>

namespace alternator::dispatch {

Counters totals;
std::map<std::string, uint64_t> breaks;

// The break is tied to one instruction: what that one calls may still be compiled.
static bool is_instruction_bound(report::Reason reason) {
  switch (reason) {
    case report::Reason::raises:
    case report::Reason::internal:
    case report::Reason::too_long:
    case report::Reason::observed:
    case report::Reason::callbacks:
    case report::Reason::interrupted:
    case report::Reason::uninitialised:
      return false;
    default:
      return true;
  }
}

// Not worth keeping for later calls.
static bool is_transient(const Entry& entry) {
  return entry.eager_because && entry.eager_because->reason == report::Reason::observed;
}

// With fullgraph=True: no error, since the program could not be written otherwise.
static bool is_excused(const Entry& entry) {
  const report::Reason reason = entry.eager_because->reason;
  return reason == report::Reason::raises || reason == report::Reason::uninitialised || is_transient(entry);
}

static void note_steps(Compilation& compilation) {
  Ref begin = checked(PyObject_GetAttrString(compilation.backend.callable.get(), "begin_step"));
  if (begin.get() != Py_None) compilation.family->begin_step = std::move(begin);
}

static void give_up(const Compilation& compilation, ResumePoint& point, const guards::Roots& roots) {
  if (std::exchange(point.cache->gave_up, true)) return;
  Borrowed code = PyFunction_GET_CODE(roots.function);
  const std::shared_ptr<Entry> last = point.entries.empty() ? nullptr : point.entries.front();
  const std::string failure = last == nullptr ? "" : last->guards->failure(roots);
  const std::string limit = "hit config.recompile_limit (" + std::to_string(compilation.most_entries) + ")";
  report_break(compilation, report::Break{report::Reason::too_many_entries, limit + "; last reason: " + failure,
                                          Ref::share(code), code.as<PyCodeObject>()->co_firstlineno});
}

namespace {

constexpr int kMostTries = 3;
// Traces of an intercepted callee in one call, as long as none has a graph.
constexpr int kMaxGraphlessTraces = 8;
// Calls of an intercepted callee, as long as it is graphless.
constexpr int kMaxGraphlessCalls = 2;

// While it lives, a compilation intercepts the frames that begin on this thread; null: none does.
class Interception {
 public:
  // `by`: the code of the frame whose instruction is executed concretely; null: the frames run eagerly.
  Interception(Compilation* to, bool may_trace, Borrowed by = {})
      : taker_(std::exchange(frame_taker, to != nullptr ? take_frame : nullptr)) {
    before_ = std::exchange(now, {to, may_trace, nullptr, by.get(), nullptr, false});
  }
  ~Interception() {
    frame_taker = taker_;
    now = before_;
  }
  Interception(const Interception&) = delete;
  Interception& operator=(const Interception&) = delete;

  struct State {
    Compilation* compilation = nullptr;  // kept alive by the call in progress
    bool may_trace = false;
    PyCodeObject* skip_once = nullptr;  // the next frame of this code runs eagerly
    PyObject* by = nullptr;             // compared by identity only
    PyCodeObject* marked = nullptr;     // ... a function that the user disabled non-recursively
    bool by_any_caller = false;
  };
  // A frame and its caller must get the same answer from torch.compiler.is_compiling().
  static bool is_called_eagerly(cpython::Frame* frame);
  static thread_local State now __attribute__((tls_model("initial-exec")));
  static bool take_frame(PyThreadState* ts, cpython::Frame* frame, PyObject** result);

 private:
  FrameTaker taker_;
  State before_;
};
thread_local Interception::State Interception::now __attribute__((tls_model("initial-exec")));

// One call in progress.
class Call {
 public:
  Call(Compilation& compilation, Borrowed function, bool may_trace = true)
      : compilation_(compilation), function_(Ref::share(function)), may_trace_(may_trace) {}

  // The entry for the current position, traced if there is none; null: the call continues uncompiled.
  std::shared_ptr<Entry> find(ResumePoint& point, std::vector<Ref>* values);
  Ref run();
  bool is_known();

  // After it continues uncompiled: whether frames that it begins are intercepted; and the continuation itself.
  bool intercepts = false;
  Ref continue_eagerly();
  // An exception is set that none of the program's frames has seen: raise it at their current position. False: there
  // are no frames.
  bool raise_in_frames();

  Chain chain;                    // empty: the function has not begun
  Chain next;                     // where the call resumes next; empty except during that transition
  std::vector<Ref> slots;         // fast locals of a function that has not begun
  std::vector<PyObject*> values;  // of `chain` or `slots`, for guards

 private:
  guards::Roots roots() const { return {function_.get(), values.data()}; }
  void collect_values();
  void advance() {
    chain.swap(next);
    next.clear();
  }
  void drop_replaced();
  void leave_frames() {
    const SavedError on_its_way;
    chain.clear();
  }
  Chain start() const;
  void note_changes(ResumePoint& point);
  bool recover_from(const Entry& entry, graph::Failure& failure);
  std::shared_ptr<Entry> trace(ResumePoint& point);
  std::shared_ptr<Entry> adopt(ResumePoint& point, std::vector<Ref>* found_values);

  bool is_graphless() const { return !compilation_.function && compilation_.graphs == 0; }

  Compilation& compilation_;
  Ref function_;
  bool may_trace_;
  int traces_ = 0;
  Ref raised_;  // raised by the instruction that the chain resumes at
};

void Call::collect_values() {
  values.resize(chain.empty() ? slots.size() : value_count(chain));
  PyObject** to = values.data();
  if (chain.empty()) {
    for (const Ref& slot : slots) *to++ = slot.get();
  } else {
    each_value(chain, [&](const Ref& value) { *to++ = value.get(); });
  }
}

// A value that differs from call to call is not worth an entry each time: after some recompilations it becomes
// unspecialized, and the instructions that need it run concretely. In a resumed call it may well be a loop counter, an
// iterated name or a growing table. At the start of a function a string selects behaviour, and is worth entries up to
// the limit.
void Call::note_changes(ResumePoint& point) {
  constexpr size_t kMost = 4, kMostResumed = 2;
  if (compilation_.fullgraph || point.entries.empty()) return;
  const std::shared_ptr<Entry> last = point.entries.front();
  for (const guards::Change& change : last->guards->changed(roots())) {
    const bool is_number = change.kind == guards::Change::Kind::kNumber;
    if (chain.empty() && !is_number) continue;
    const size_t most = chain.empty() ? kMost : is_number ? kMostResumed : kMostResumed + 1;
    if (++point.changes[change.source] >= most) compilation_.unspecialized.insert(change.source);
  }
}

// The function, as a chain that has not begun.
Chain Call::start() const {
  Chain start;
  FrameState& state = start.emplace_back();
  state.function = function_;
  state.code = Ref::share(PyFunction_GET_CODE(function_.get()));
  state.locals.assign(slots.begin(), slots.end());
  return start;
}

std::shared_ptr<Entry> Call::trace(ResumePoint& point) {
  totals.traces++;
  traces_++;
  report_recompile(compilation_, point, roots());
  note_changes(point);
  trace::TraceOptions options{.may_break = !compilation_.fullgraph};
  if (!compilation_.unspecialized.empty())  // copied: another thread may add to it
    options.unspecialized = std::make_shared<const std::unordered_set<std::string>>(compilation_.unspecialized);
  const Chain from = chain.empty() ? start() : Chain();
  std::shared_ptr<Entry> entry;
  const trace::Denying denying(compilation_.denies);
  for (int tries = 1; entry == nullptr; tries++) {
    entry = trace_entry(chain.empty() ? from : chain, roots(), compilation_.backend, options, tries >= kMostTries,
                        &compilation_.numpy_constants);
    // Nothing can be captured without specializing.
    if (options.unspecialized != nullptr && entry != nullptr && entry->eager_because) {
      options.unspecialized.reset();
      entry.reset();
    }
  }
  if (entry->has_graph()) {
    totals.graphs++;
    compilation_.graphs++;
    if (entry->compiled) note_steps(compilation_);
  }
  if (entry->eager_because) report_break(compilation_, *entry->eager_because);
  if (entry->stops_because) report_break(compilation_, *entry->stops_because, false);
  if (is_transient(*entry)) return entry;
  point.entries.insert(point.entries.begin(), entry);
  point.traced++;
  point.cache->add(entry, compilation_.cache_owner, compilation_.most_entries);
  report_entry(compilation_, point, *entry);
  return entry;
}

std::shared_ptr<Entry> Call::find(ResumePoint& point, std::vector<Ref>* found_values) {
  for (size_t i = 0; i < point.entries.size(); i++) {
    found_values->clear();
    std::shared_ptr<Entry> entry = point.entries[i];  // owned: another thread may reset() while it runs
    if (!entry->admits(roots(), found_values)) continue;
    if (i > 0) move_to_front(point, entry);
    totals.hits += entry->eager_because ? 0 : 1;
    return entry;
  }
  if (std::shared_ptr<Entry> entry = adopt(point, found_values)) return entry;
  if (!may_trace_ || (traces_ >= kMaxGraphlessTraces && is_graphless())) return nullptr;
  // A debugger or profiler would make CPython's eval loop run the traced frames.
  if (cpython::kTracersInstrument && cpython::tracing_active(PyThreadState_Get())) return nullptr;
  if (point.traced >= compilation_.most_entries) {
    give_up(compilation_, point, roots());
    intercepts = true;
    return nullptr;
  }
  if (stance() == Stance::kMustBeKnown) raise_unknown_call(function_);
  for (int tries = 0; tries < kMostTries; tries++) {
    std::shared_ptr<Entry> entry = trace(point);
    found_values->clear();
    if (entry->eager_because || entry->admits(roots(), found_values)) return entry;
    // What the backend imported while compiling has changed what the trace had read.
    if (drop(point, entry)) point.traced--;
  }
  throw InternalError("the guards of a new entry do not hold");
}

// Entries of other compile()s that this call can use. Those left by the same cache owner count as its own.
std::shared_ptr<Entry> Call::adopt(ResumePoint& point, std::vector<Ref>* found_values) {
  const std::vector<std::shared_ptr<Entry>> left = point.cache->unused_of(*compilation_.cache_owner);
  const std::vector<std::shared_ptr<Entry>> others = point.cache->others(point.entries);
  point.entries.insert(point.entries.end(), left.begin(), left.end());
  point.traced += left.size();
  for (const std::shared_ptr<Entry>& entry : others) {
    found_values->clear();
    if (!entry->admits(roots(), found_values)) continue;
    if (entry->compiled && !compilation_.family->begin_step) note_steps(compilation_);
    if (std::find(point.entries.begin(), point.entries.end(), entry) == point.entries.end())
      point.entries.push_back(entry);
    move_to_front(point, entry);
    totals.hits += entry->eager_because ? 0 : 1;
    return entry;
  }
  return nullptr;
}

bool Call::is_known() {
  collect_values();
  std::vector<Ref> found_values;
  const std::vector<std::shared_ptr<Entry>> entries = compilation_.start->entries;
  for (auto& entry : entries) {
    found_values.clear();
    if (!entry->eager_because && entry->admits(roots(), &found_values)) return true;
  }
  return false;
}

// The graph raised after irreversible mutations. Performs the side effects up to that point, and puts the frames where
// the exception was raised. False: the position is not known, and nothing was done.
bool Call::recover_from(const Entry& entry, graph::Failure& failure) {
  if (failure.node == graph::kNowhere || PyErr_ExceptionMatches(PyExc_Exception) == 0) return false;
  Ref error = cpython::take_raised();
  Recovered left;
  std::vector<Ref> needed;
  try {
    // If the graph has mutated what the guards check, retracing would take another path.
    if (entry.admits(roots(), &needed)) {
      const Chain from = chain.empty() ? start() : Chain();
      left = retrace_failure(chain.empty() ? from : chain, entry, failure);
      needed.clear();
      if (left.entry != nullptr && !left.entry->guards->check(roots(), &needed)) left.entry.reset();
    }
  } catch (const PyError&) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) throw;
    PyErr_Clear();
    left.entry.reset();
  } catch (const std::exception&) {
    PyErr_Clear();
    left.entry.reset();
  }
  if (left.entry == nullptr) {
    cpython::set_raised(std::move(error));
    return false;
  }
  check_status(PyException_SetTraceback(error.get(), failure.traceback ? failure.traceback.get() : Py_None));
  failure = {};
  std::vector<PyObject*> outputs(left.outputs.size());
  for (size_t i = 0; i < outputs.size(); i++) outputs[i] = left.outputs[i].get();
  (void)left.entry->finish(needed, outputs.data(), outputs.size(), &next);
  slots.clear();
  values.clear();
  advance();
  chain.back().function = function_;
  if (left.has_raised) raised_ = std::move(error);
  return true;
}

// Continues in CPython's eval loop.
Ref Call::continue_eagerly() {
  return raised_ ? continue_raising(chain, std::move(raised_)) : continue_chain(chain, nullptr);
}

// The next instruction overwrites this variable: whether it still has its old value (or none, in a loop's first
// iteration) must not make another resume point, unless the finalization of the old value is observable.
void Call::drop_replaced() {
  const int variable = sets_next(chain);
  if (variable < 0) return;
  Ref& old = chain.front().locals[static_cast<size_t>(variable)];
  if (old && !PyCell_Check(old.get()) && !trace::holds_observably_finalized(old)) Ref(std::move(old)).reset();
}

bool Call::raise_in_frames() {
  if (chain.empty()) return false;
  raised_ = cpython::take_raised();
  return true;
}

// Null without an exception: the rest of the call runs eagerly. If it throws and the chain is not empty, the frames
// have not seen the exception.
Ref Call::run() {
  std::shared_ptr<ResumePoint> point = compilation_.start;
  std::vector<Ref> found_values;
  collect_values();
  for (;;) {
    std::shared_ptr<Entry> entry;
    try {
      entry = find(*point, &found_values);
    } catch (const PyError&) {
      // Tracing and compiling need more stack than the call itself might.
      if (!PyErr_ExceptionMatches(PyExc_RecursionError)) throw;
      PyErr_Clear();
    } catch (const std::exception& error) {
      report_break(compilation_, report::Break{report::Reason::internal, error.what(), {}, 0});
      PyErr_Clear();
    }
    if (entry == nullptr) return {};
    if (entry->eager_because) {
      if (!may_trace_) return {};
      if (compilation_.fullgraph && !is_excused(*entry))
        raise_break(compilation_, *entry->eager_because, "fullgraph=True");
      if (entry->refuses) raise_break(compilation_, *entry->eager_because, "error_on_graph_break(True)");
      intercepts = is_instruction_bound(entry->eager_because->reason);
      return {};
    }
    // Nothing was recorded, and the user did not ask to compile this function.
    if (!compilation_.function && chain.empty() && entry->stop.empty() && !entry->has_graph()) return {};
    entry->hits++;
    Ref result;
    graph::Failure failure;
    try {
      result = entry->run(found_values, &next, &failure);
    } catch (const PyError&) {
      if (recover_from(*entry, failure)) return {};
      if (entry->residual.program().raises) leave_frames();
      throw;
    }
    if (result) return result;
    if (next.empty()) {  // a speculated check failed
      if (entry->is_refuted) (void)drop(*point, entry);
      return {};
    }
    // Values that the call held until now may die here, as in eager.
    found_values.clear();
    slots.clear();
    values.clear();
    advance();
    chain.back().function = function_;
    const Interception interception(&compilation_, may_trace_, chain.front().code);
    if (!step(chain, &next, &result)) {
      leave_frames();
      if (!result) throw PyError();
      return result;
    }
    advance();
    drop_replaced();
    collect_values();
    point = resume_point_of(compilation_, chain, values, *entry);
  }
}

// Nesting depth of calls in progress on this thread.
thread_local int depth __attribute__((tls_model("initial-exec"))) = 0;

class Nested {
 public:
  Nested() { depth++; }
  ~Nested() { depth--; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
};

// Moves the fast locals of a frame that has not begun into the call.
class Taken {
 public:
  Taken(cpython::Frame* frame, std::vector<Ref>& slots) : frame_(frame), slots_(slots) {
    const int count = cpython::code_of(frame)->co_nlocalsplus;
    for (int i = 0; i < count; i++) slots_.push_back(Ref::steal(std::exchange(frame->localsplus[i], nullptr)));
  }
  void give_back() {
    for (size_t i = 0; i < slots_.size(); i++) frame_->localsplus[i] = slots_[i].release();
  }

 private:
  cpython::Frame* frame_;
  std::vector<Ref>& slots_;
};

std::shared_ptr<Compilation> compilation_of(Callee& callee, const Compilation& caller, bool eagerly) {
  std::shared_ptr<Compilation>& made = eagerly ? callee.eager_compilation : callee.compilation;
  if (made == nullptr) {
    made = std::make_shared<Compilation>(std::make_shared<Store>());
    made->listener = caller.listener;
    made->backend = caller.backend;
    made->most_entries = caller.most_entries;
    made->family = caller.family;
    made->denies = eagerly;
  }
  return made;
}

// Null without an exception: the frame runs eagerly.
Ref run_callee(Callee& callee, Compilation& compilation, cpython::Frame* frame, bool may_trace) {
  Call call(compilation, cpython::function_of(frame), may_trace);
  const Nested nested;
  Taken taken(frame, call.slots);
  Ref result;
  try {
    const Interception nothing(nullptr, false);
    result = call.run();
  } catch (const PyError&) {
    if (!call.raise_in_frames()) throw;
  }
  if (compilation.graphs == 0 && ++callee.graphless >= kMaxGraphlessCalls) callee.kind = Callee::Kind::kSkip;
  if (result) return result;
  if (call.chain.empty()) {
    call.values.clear();
    taken.give_back();
    return {};
  }
  call.values.clear();
  result = call.continue_eagerly();
  if (!result) throw PyError();
  return result;
}

// sys.breakpointhook, borrowed; null: none. PySys_GetObject() would build and hash the name for every frame.
PyObject* breakpoint_hook() {
  static PyObject* variables = nullptr;
  static PyObject* found = nullptr;  // valid for `version` of the dict
  static uint64_t version = 0;
  if (variables == nullptr) {
    PyObject* sys = PyDict_GetItemString(PyImport_GetModuleDict(), "sys");
    if (sys == nullptr || !PyModule_Check(sys)) return PySys_GetObject("breakpointhook");
    variables = Py_NewRef(PyModule_GetDict(sys));
  }
  if (const uint64_t now = cpython::dict_version(variables); now != version) {
    found = PyDict_GetItemWithError(variables, names::breakpointhook);
    if (found == nullptr) PyErr_Clear();
    version = now;
  }
  return found;
}

// A debugger must not be compiled, nor what it calls.
bool is_breakpoint_hook(Borrowed function) {
  PyObject* hook = breakpoint_hook();
  if (hook != nullptr && PyMethod_Check(hook)) hook = PyMethod_GET_FUNCTION(hook);
  return hook == function.get();
}

bool Interception::is_called_eagerly(cpython::Frame* frame) {
  if (now.compilation->denies) return true;
  if (now.by_any_caller) return false;
  cpython::Frame* caller = cpython::current_frame(PyThreadState_Get());  // the new frame is linked only once it runs
  if (caller == frame) caller = caller->previous;
  while (caller != nullptr && cpython::is_incomplete(caller)) caller = caller->previous;
  if (caller == nullptr) return true;
  PyCodeObject* code = cpython::code_of(caller);
  return code != now.marked && reinterpret_cast<PyObject*>(code) != now.by;
}

bool Interception::take_frame(PyThreadState* ts, cpython::Frame* frame, PyObject** result) {
  if (!is_plain_start(ts, frame)) return false;
  PyCodeObject* code = cpython::code_of(frame);
  Borrowed function = cpython::function_of(frame);
  const bool skip_once = now.skip_once == code;
  if (skip_once) now.skip_once = nullptr;
  auto run_alone = [&] {
    const Interception nothing(nullptr, false);
    *result = run_untaken(ts, frame);
    return true;
  };
  if (is_breakpoint_hook(function)) return run_alone();
  switch (disabled_by(function)) {
    case Disabled::kAll:
      return run_alone();
    case Disabled::kItself:
      now.skip_once = code_behind(function);
      now.marked = now.skip_once != nullptr ? now.skip_once : code;
      return false;
    case Disabled::kNone:
      break;
  }
  if (skip_once) return false;
  if (now.compilation->family->is_skipped(code)) return false;
  std::shared_ptr<Callee> callee = now.compilation->family->callee(frame);
  if (callee == nullptr || callee->kind == Callee::Kind::kSkip) return false;
  if (callee->kind == Callee::Kind::kSkipAll) return run_alone();
  if (!may_reach_tensor(frame, *callee)) return false;
  const Stance wanted = stance();
  if (wanted == Stance::kEager) return run_alone();
  std::shared_ptr<Compilation> compilation;
  Ref found;
  try {
    compilation = compilation_of(*callee, *now.compilation, is_called_eagerly(frame));
    found = run_callee(*callee, *compilation, frame, now.may_trace && wanted != Stance::kKnownOnly);
    if (!found) return false;
  } catch (const PyError&) {
  } catch (const std::exception& error) {
    PyErr_Format(PyExc_RuntimeError, "alternator: %s", error.what());
  }
  *result = cpython::end_frame(ts, frame, found.release());
  return true;
}

}  // namespace

// Compilations that intercept frames of this thread by begin_interception(), innermost last. The callers of it keep
// them alive.
static thread_local std::vector<Compilation*> intercepting;

static void intercept_for_innermost() {
  Compilation* to = intercepting.empty() ? nullptr : intercepting.back();
  frame_taker = to != nullptr ? Interception::take_frame : nullptr;
  Interception::now = {to, to != nullptr, nullptr, nullptr, nullptr, true};
}

void begin_interception(Compilation& compilation) {
  acquire_hook();
  intercepting.push_back(&compilation);
  intercept_for_innermost();
}

void end_interception(Compilation& compilation) {
  auto found = std::find(intercepting.rbegin(), intercepting.rend(), &compilation);
  if (found == intercepting.rend()) return;  // it began on another thread
  intercepting.erase(std::next(found).base());
  intercept_for_innermost();
  release_hook();
}

bool is_known(Compilation& compilation, PyObject* const* arguments, size_t positional, PyObject* keyword_names) {
  Call call(compilation, compilation.function, false);
  return bind_arguments(compilation.function, arguments, positional, keyword_names, &call.slots) && call.is_known();
}

PyObject* call(Compilation& compilation, PyObject* const* arguments, size_t positional, PyObject* keyword_names,
               bool may_trace) {
  Call call(compilation, compilation.function, may_trace);
  totals.calls++;
  const Nested nested;
  const Interception nothing(nullptr, false);
  try {
    if (compilation.family->begin_step && depth == 1)
      (void)checked(PyObject_CallNoArgs(compilation.family->begin_step.get()));
    if (bind_arguments(compilation.function, arguments, positional, keyword_names, &call.slots)) {
      if (Ref result = call.run()) return result.release();
      totals.eager++;
    }
  } catch (const PyError&) {
    if (!call.raise_in_frames()) return nullptr;
  } catch (const std::exception& error) {
    PyErr_Format(PyExc_RuntimeError, "alternator: %s", error.what());
    if (!call.raise_in_frames()) return nullptr;
  }
  const Interception interception(call.intercepts ? &compilation : nullptr, may_trace);
  if (call.chain.empty()) {
    call.slots.clear();
    if (call.intercepts) acquire_hook();
    Interception::now.skip_once = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(compilation.function.get()));
    PyObject* result = PyObject_Vectorcall(compilation.function.get(), arguments, positional, keyword_names);
    if (call.intercepts) release_hook();
    return result;
  }
  call.values.clear();
  acquire_hook();
  Ref result = call.continue_eagerly();
  release_hook();
  return result.release();
}

}  // namespace alternator::dispatch
