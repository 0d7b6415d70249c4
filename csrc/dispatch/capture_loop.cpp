#include "dispatch/capture_loop.h"

#include "cpython/warning_filters.h"
#include "dispatch/dynamism_policy.h"
#include "dispatch/events.h"
#include "dispatch/failure_recovery.h"
#include "dispatch/resume_points.h"
#include "dispatch/shape_specs.h"
#include "dispatch/stance.h"
#include "interpreter/capture.h"
#include "interpreter/frame_values.h"
#include "interpreter/step.h"
#include "py/import.h"
#include "py/lasting.h"
#include "report/reason_flags.h"
#include "trace/calls/markers.h"
#include "trace/core/user_lines.h"
#include "trace/soundness/finalizers.h"

#include <algorithm>

namespace alternator::dispatch {

thread_local int call_depth __attribute__((tls_model("initial-exec"))) = 0;

static constexpr int kMostTries = 3;
// Traces of an intercepted callee in one call, as long as none has a graph.
static constexpr int kMaxGraphlessTraces = 8;

// Not worth keeping for later calls.
static bool is_transient(const Entry& entry) {
  return entry.eager_because && report::has(entry.eager_because->reason, report::kTransient);
}

static void note_steps(Compilation& compilation) {
  Ref begin = checked(PyObject_GetAttrString(compilation.backend.callable.get(), "begin_step"));
  if (begin.get() != Py_None) compilation.family->begin_step = std::move(begin);
}

static bool same_position(const FrameState& a, const FrameState& b) {
  return a.code.get() == b.code.get() && a.next == b.next;
}

// Whether the innermost function of the point is one of its own callers.
static bool is_recursive(const ResumePoint& point) {
  return std::any_of(point.shape.begin() + 1, point.shape.end(),
                     [&](const FrameState& outer) { return outer.code.get() == point.shape.front().code.get(); });
}

// The resume points that count as one for the limit: those at one position of a function that calls itself. The text of
// a program bounds how many resume points it has; what recursion makes of them it does not.
static std::vector<ResumePoint*> points_like(const Compilation& compilation, ResumePoint& point) {
  std::vector<ResumePoint*> found;
  if (point.shape.empty()) return {&point};
  bool recurses = false;
  for (const std::shared_ptr<ResumePoint>& other : compilation.resumed) {
    if (!same_position(other->shape.front(), point.shape.front())) continue;
    recurses = recurses || is_recursive(*other);
    found.push_back(other.get());
  }
  return recurses ? found : std::vector<ResumePoint*>{&point};
}

// What a report names: of a stopped call, the innermost frame of the user; of a module, its forward.
struct UsersFunction {
  Ref code;
  int line;
};
static UsersFunction function_of_user(const Chain& chain, const guards::Roots& roots, size_t count) {
  for (const FrameState& state : chain) {
    auto* code = state.code.as<PyCodeObject>();
    if (trace::is_torchs(code) || trace::is_librarys(code)) continue;
    return {state.code, PyCode_Addr2Line(code, state.next * static_cast<int>(sizeof(_Py_CODEUNIT)))};
  }
  Borrowed code = PyFunction_GET_CODE(roots.function);
  PyObject* self = count > 0 && chain.empty() ? roots.slots[0] : nullptr;
  if (self != nullptr && trace::is_torchs(code.as<PyCodeObject>())) {
    static constinit Lasting<PyObject*> forward;
    PyObject* key = forward.get([] { return checked(PyUnicode_InternFromString("forward")).release(); });
    PyObject* found = _PyType_Lookup(Py_TYPE(self), key);
    if (found != nullptr && PyFunction_Check(found)) code = PyFunction_GET_CODE(found);
  }
  return {Ref::share(code), code.as<PyCodeObject>()->co_firstlineno};
}

static std::string name_of(const Ref& code) {
  const char* text = PyUnicode_AsUTF8(code.as<PyCodeObject>()->co_qualname);
  if (text == nullptr) PyErr_Clear();
  return text != nullptr ? text : "?";
}

// Of all compile()s: those with a cache of their own, too.
size_t Call::entries_in_all(const ResumePoint& point) const {
  const size_t here = point.cache->slots.size();
  if (!chain.empty() || !compilation_.function) return here;
  return std::max(here, entries_of_code(PyFunction_GET_CODE(compilation_.function.get())));
}

// Whether the call, which matches no entry, must not be traced. One report of that for each resume point; an error
// where the options want one.
bool Call::is_at_limit(ResumePoint& point) {
  const Limits limits = limits_of(compilation_);
  const bool is_total = entries_in_all(point) >= limits.total;
  const std::vector<ResumePoint*> alike = points_like(compilation_, point);
  size_t traced = 0;
  for (const ResumePoint* other : alike) traced += other->traced;
  // The first entry of a resume point is no recompilation.
  const bool is_full = traced >= limits.entries && (point.traced > 0 || limits.entries == 0);
  if (!is_full && !is_total) return false;
  const bool raises = compilation_.fullgraph || limits.fails;
  const bool was_reported = point.cache->gave_up;
  for (const ResumePoint* other : alike) other->cache->gave_up = true;
  if (!raises && was_reported) return true;
  UsersFunction function = function_of_user(chain, roots(), values.size());
  const std::shared_ptr<Entry> last = recent_entry(point);
  const std::string failure = last == nullptr ? "" : last->guards->failure(roots());
  const std::string limit = is_total ? "accumulated_recompile_limit (" + std::to_string(limits.total)
                                     : "recompile_limit (" + std::to_string(limits.entries);
  const std::string name = name_of(function.code);
  const report::Break event{report::Reason::recompile_limit,
                            "hit config." + limit + "); function: " + name + "; last reason: " + failure,
                            std::move(function.code), function.line};
  const char* option = limits.fails ? "fail_on_recompile_limit_hit=True" : "fullgraph=True";
  report_break(compilation_, event, {.refused_by = raises ? option : nullptr});
  if (raises) raise_limit(compilation_, event, option);
  return true;
}

void Call::collect_values() {
  values.resize(chain.empty() ? slots.size() : value_count(chain));
  PyObject** to = values.data();
  if (chain.empty()) {
    for (const Ref& slot : slots) *to++ = slot.get();
  } else {
    each_value(chain, [&](const Ref& value) { *to++ = value.get(); });
  }
}

// See Stance::kEagerFirst.
void Call::note_first_call(SharedCache& cache) {
  if (!chain.empty() || compilation_.first_call == nullptr) return;
  const std::shared_ptr<const FirstCall> first = std::exchange(compilation_.first_call, nullptr);
  note_difference(cache, *first, describe_call(function_, slots));
}

// A value that differs from call to call is not worth an entry each time: after some recompilations it becomes
// unspecialized, and the instructions that need it run concretely. In a resumed call it may well be a loop counter, an
// iterated name or a growing table. At the start of a function a string selects behavior, and is worth entries up to
// the limit.
void Call::note_changes(ResumePoint& point) {
  constexpr size_t kMost = 4, kMostResumed = 2, kMostCompared = 4;
  if (point.entries.empty()) return;
  std::vector<guards::Change> changes = recent_entry(point)->guards->changed(roots());
  // The recent entry may be of another type, or of another path.
  for (size_t i = 0; changes.empty() && i < std::min(point.entries.size(), kMostCompared); i++)
    changes = point.entries[i]->guards->changed(roots());
  bool in_container = false;  // a number in one is a symbol from now on
  for (const guards::Change& change : changes) {
    const bool is_dynamic = note_change(compilation_, *point.cache, change);
    in_container = in_container || (is_dynamic && change.in_container);
    if (is_dynamic || compilation_.fullgraph || change.kind == guards::Change::Kind::kSize || change.in_container)
      continue;
    if (change.kind == guards::Change::Kind::kContainer && in_container) continue;
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

// The trace ends at a call that may not take a symbol.
static bool may_need_constants(const Entry& entry) {
  using report::Reason;
  const std::optional<report::Break>& stop = entry.eager_because ? entry.eager_because : entry.stops_because;
  if (!stop) return false;
  return stop->reason == Reason::native_call || stop->reason == Reason::unbacked_value ||
         stop->reason == Reason::data_dependent || stop->reason == Reason::cannot_lift ||
         stop->reason == Reason::torch_call;
}

std::shared_ptr<Entry> Call::trace(ResumePoint& point) {
  const cpython::KeepsShownWarnings shown;
  if (compilation_.shapes_spec && chain.empty()) check_spec(compilation_, slots);
  totals.traces++;
  traces_++;
  report_recompile(compilation_, point, roots());
  note_changes(point);
  trace::TraceOptions options{.may_break = !compilation_.fullgraph};
  note_first_call(*point.cache);
  const std::shared_ptr<const lift::Dynamism> dynamism = options.dynamism = dynamism_of(compilation_, *point.cache);
  // What the hand-off of symbols imports registers abstract classes, which what a trace has read would not survive.
  if (dynamism != nullptr && (dynamism->has_sizes() || dynamism->has_numbers()) && compilation_.backend.callable)
    (void)import_module("alternator.symbolic_examples");
  if (!compilation_.unspecialized.empty())  // copied: another thread may add to it
    options.unspecialized = std::make_shared<const std::unordered_set<std::string>>(compilation_.unspecialized);
  const Chain from = chain.empty() ? start() : Chain();
  std::shared_ptr<Entry> entry;
  const trace::Denying denying(compilation_.denies);
  for (int tries = 1; entry == nullptr; tries++) {
    entry = trace_entry(chain.empty() ? from : chain, roots(), compilation_.backend, options, tries >= kMostTries,
                        &compilation_.numpy_constants, &point.cache->dynamism);
    // Nothing can be captured without specializing.
    if (options.unspecialized != nullptr && entry != nullptr && entry->eager_because) {
      options.unspecialized.reset();
      entry.reset();
    }
  }
  if (options.dynamism != nullptr && entry->met_symbolic_numbers && may_need_constants(*entry)) {
    // What cannot be captured with a symbol may be captured with a constant.
    auto constant = std::make_shared<lift::Dynamism>(*options.dynamism);
    constant->ints = constant->floats = false;
    trace::TraceOptions again = options;
    again.dynamism = std::move(constant);
    again.only_whole = true;
    std::shared_ptr<Entry> other = trace_entry(chain.empty() ? from : chain, roots(), compilation_.backend, again, true,
                                               &compilation_.numpy_constants, &point.cache->dynamism);
    if (other != nullptr && !other->eager_because && !other->stops_because) {
      other->traced_with.only_whole = false;
      lift::Dynamism& known = point.cache->dynamism;
      known.static_numbers.insert(known.numbers.begin(), known.numbers.end());
      entry = std::move(other);
    }
  }
  // Two traces with different sizes have not agreed: from now on these are constants.
  if (dynamism != nullptr && !entry->eager_because && entry->traced_with.dynamism == nullptr)
    point.cache->dynamism.none = true;
  note_symbols(*point.cache, *entry);
  report_symbols(compilation_, point, *entry);
  check_marks(compilation_, *entry);
  if (entry->has_graph()) {
    totals.graphs++;
    compilation_.graphs++;
    if (entry->graph.is_compiled()) note_steps(compilation_);
  }
  if (entry->eager_because)
    report_break(compilation_, *entry->eager_because, {.refused_by = option_that_refuses(*entry)});
  if (entry->stops_because) report_break(compilation_, *entry->stops_because, {.resumes = true});
  if (is_transient(*entry)) return entry;
  add_entry(point, entry);
  point.traced++;
  point.cache->add(entry, compilation_.cache_owner, limits_of(compilation_).entries);
  report_entry(compilation_, point, *entry);
  return entry;
}

std::shared_ptr<Entry> Call::find(ResumePoint& point, std::vector<Ref>* found_values) {
  for (size_t i = 0; i < point.entries.size(); i++) {
    found_values->clear();
    std::shared_ptr<Entry> entry = point.entries[i];  // owned: another thread may reset() while it runs
    if (!entry->admits(roots(), found_values)) continue;
    if (i > 0) move_to_front(point, entry);
    point.recent = entry.get();
    totals.hits += entry->eager_because ? 0 : 1;
    return entry;
  }
  if (std::shared_ptr<Entry> entry = adopt(point, found_values)) return entry;
  if (!may_trace_ || (traces_ >= kMaxGraphlessTraces && is_graphless())) return nullptr;
  // A debugger or profiler would make CPython's eval loop run the traced frames.
  if (cpython::kTracersInstrument && cpython::tracing_active(PyThreadState_Get())) return nullptr;
  if (stance() == Stance::kMustBeKnown) raise_unknown_call(function_);
  if (is_at_limit(point)) return nullptr;
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
    if (entry->graph.is_compiled() && !compilation_.family->begin_step) note_steps(compilation_);
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

// Null: the call continues uncompiled.
std::shared_ptr<Entry> Call::find_or_none(ResumePoint& point, std::vector<Ref>* found_values) {
  try {
    return find(point, found_values);
  } catch (const PyError&) {
    // Tracing and compiling need more stack than the call itself might.
    if (!PyErr_ExceptionMatches(PyExc_RecursionError)) throw;
    PyErr_Clear();
  } catch (const std::exception& error) {
    report_break(compilation_, report::Break{report::Reason::internal, error.what(), {}, 0});
    PyErr_Clear();
  }
  return nullptr;
}

// The option that makes the break of an eager entry an error; null: none.
const char* Call::option_that_refuses(const Entry& entry) const {
  if (compilation_.fullgraph && !report::has(entry.eager_because->reason, report::kEager)) return "fullgraph=True";
  return entry.refuses ? "error_on_graph_break(True)" : nullptr;
}

// Whether the entry has nothing to run: the rest of the call runs eagerly. Throws where that is not allowed.
bool Call::falls_back(const Entry& entry) {
  if (entry.eager_because) {
    if (!may_trace_) return true;
    const char* option = option_that_refuses(entry);
    if (option != nullptr) raise_break(compilation_, *entry.eager_because, option);
    // What the instruction calls may still be compiled.
    intercepts = !report::has(entry.eager_because->reason, report::kAnywhere | report::kCallees);
    return true;
  }
  // Nothing was recorded, and the user did not ask to compile this function.
  return !compilation_.function && chain.empty() && entry.stop.empty() && !entry.has_graph();
}

// Null without an exception: the rest of the call runs eagerly. If it throws and the chain is not empty, the frames
// have not seen the exception.
Ref Call::run() {
  std::shared_ptr<ResumePoint> point = compilation_.start;
  std::vector<Ref> found_values;
  collect_values();
  for (;;) {
    const std::shared_ptr<Entry> entry = find_or_none(*point, &found_values);
    if (entry == nullptr || falls_back(*entry)) return {};
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

}  // namespace alternator::dispatch
