#include "dispatch/events.h"

#include "interpreter/frame_values.h"
#include "report/reason_flags.h"

namespace alternator::dispatch {

namespace {

// Errors of a listener are reported as unraisable; an interrupt that arrives meanwhile is passed on to the program.
void notify(const Compilation& compilation, const char* method, Borrowed argument) {
  Ref interrupt;
  {
    const SavedError outer;
    Ref done = Ref::steal(PyObject_CallMethod(compilation.listener.get(), method, "O", argument.get()));
    if (!done && PyErr_ExceptionMatches(PyExc_Exception)) {
      PyErr_WriteUnraisable(compilation.listener.get());
    } else if (!done) {
      interrupt = cpython::take_raised();
    }
  }
  if (!interrupt) return;
  cpython::set_raised(std::move(interrupt));
  throw PyError();
}

Ref text(const std::string& bytes) {
  return checked(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

Ref list_of(const std::vector<std::string>& texts) {
  Ref list = checked(PyList_New(0));
  for (const std::string& one : texts) check_status(PyList_Append(list.get(), text(one).get()));
  return list;
}

void set(Borrowed dict, const char* key, Ref value) {
  check_status(PyDict_SetItemString(dict.get(), key, value.get()));
}

Ref boolean(bool value) { return Ref::share(value ? Py_True : Py_False); }

// A guard as a dict; "at" is the user's line that caused it, or None.
Ref describe(const guards::Explanation& guard) {
  Ref dict = checked(PyDict_New());
  set(dict, "source", text(guard.source));
  set(dict, "kind", text(guard.kind));
  set(dict, "sentence", text(guard.sentence));
  set(dict, "wanted", text(guard.wanted));
  set(dict, "got", text(guard.got));
  set(dict, "text", text(guard.text()));
  Ref at = Ref::share(Py_None);
  if (!guard.file.empty()) {
    at = checked(Py_BuildValue("{s:N,s:i,s:N}", "file", text(guard.file).release(), "line", guard.line, "function",
                               text(guard.function).release()));
  }
  set(dict, "at", std::move(at));
  return dict;
}

report::Line line_of(const FrameState& state, bool innermost) {
  const int index = innermost ? state.next : state.current;
  auto* code = state.code.as<PyCodeObject>();
  const int line = PyCode_Addr2Line(code, index * static_cast<int>(sizeof(uint16_t)));
  return {state.code, line, index};
}

// The current line of each frame of a chain, outermost first.
Ref lines_of(const Chain& chain) {
  Ref list = checked(PyList_New(0));
  for (size_t i = chain.size(); i-- > 0;)
    check_status(PyList_Append(list.get(), report::as_dict(line_of(chain[i], i == 0)).get()));
  return list;
}

// A name for each value of a chain, in the order of each_value.
std::vector<std::string> names_of(const Chain& chain) {
  std::vector<std::string> names;
  for (size_t i = chain.size(); i-- > 0;) {
    const FrameState& state = chain[i];
    auto* code = state.code.as<PyCodeObject>();
    const char* function = PyUnicode_AsUTF8(code->co_name);
    const std::string function_name = function != nullptr ? function : "?";
    auto unnamed = [&](const std::string& what) { names.push_back("the " + what + " of " + function_name); };
    if (i + 1 < chain.size()) unnamed("function");
    for (size_t j = 0; j < state.locals.size(); j++) {
      const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(code->co_localsplusnames, static_cast<Py_ssize_t>(j)));
      names.push_back(function_name + "." + (name != nullptr ? name : "?"));
    }
    for (size_t j = 0; j < state.stack.size(); j++) unnamed("value stack[" + std::to_string(j) + "]");
    for (const char* other : {"first argument", "generator", "namespace", "frame"}) unnamed(other);
    if (state.saved_exception_slot >= 0) unnamed("exception");
    PyErr_Clear();
  }
  return names;
}

void add_details(Borrowed event, const ResumePoint& point, const Entry& entry) {
  Ref guard_list = checked(PyList_New(0));
  for (const guards::Explanation& guard : entry.guards->all())
    check_status(PyList_Append(guard_list.get(), describe(guard).get()));
  set(event, "guards", std::move(guard_list));
  std::vector<std::string> sources;
  for (const lift::Source* source : entry.graph.input_sources())
    sources.push_back(source != nullptr ? source->text() : std::string("a size"));
  set(event, "inputs", list_of(sources));
  set(event, "residual", list_of(entry.residual.lines()));
  set(event, "results", list_of(entry.residual.results()));
  set(event, "result_names", list_of(names_of(entry.stop)));
  std::vector<std::string> arguments = names_of(point.shape);
  size_t present = 0;
  for (size_t i = 0; i < arguments.size(); i++) {
    if (point.present[i]) arguments[present++] = arguments[i];
  }
  arguments.resize(present);
  set(event, "arguments", list_of(arguments));
}

}  // namespace

void report_break(const Compilation& compilation, const report::Break& event, BreakOutcome outcome) {
  breaks[report::name(event.reason)]++;
  if (!compilation.listener) return;
  Ref dict = event.as_dict();
  set(dict, "whole", boolean(!outcome.resumes));
  const bool refused = outcome.refused_by != nullptr && !report::has(event.reason, report::kOurs);
  set(dict, "refused_by", refused ? text(outcome.refused_by) : Ref::share(Py_None));
  notify(compilation, "broke", dict);
}

void report_recompile(const Compilation& compilation, const ResumePoint& point, const guards::Roots& roots) {
  if (!compilation.listener || point.entries.empty()) return;
  Ref failures = checked(PyList_New(0));
  const std::vector<std::shared_ptr<Entry>> entries = point.entries;
  for (auto& entry : entries) {
    guards::Explanation failure = entry->guards->explain(roots);
    if (failure.kind.empty() && !entry->residual.program().is_alive()) {
      failure.kind = "function";
      failure.sentence = "a function that was used is gone";
    } else if (failure.kind.empty()) {
      failure.kind = "memory";
      failure.sentence = "other inputs of the graph share memory";
    }
    check_status(PyList_Append(failures.get(), describe(failure).get()));
  }
  Ref event = checked(PyDict_New());
  set(event, "resumed_at", lines_of(point.shape));
  set(event, "failures", std::move(failures));
  notify(compilation, "recompiling", event);
}

void report_entry(const Compilation& compilation, const ResumePoint& point, const Entry& entry) {
  if (!compilation.listener) return;
  Ref event = checked(PyDict_New());
  const report::Break* why = entry.eager_because   ? &*entry.eager_because
                             : entry.stops_because ? &*entry.stops_because
                                                   : nullptr;
  set(event, "resumed_at", lines_of(point.shape));
  set(event, "stops_at", lines_of(entry.stop));
  set(event, "reason", why != nullptr ? text(report::name(why->reason)) : Ref::share(Py_None));
  set(event, "eager", boolean(entry.eager_because.has_value()));
  set(event, "acts", boolean(entry.residual.acts() || entry.exit.changes_modes()));
  set(event, "raises", boolean(entry.residual.program().raises));
  set(event, "operations", checked(PyLong_FromSize_t(entry.has_graph() ? entry.graph.program().live_count() : 0)));
  set(event, "seconds",
      checked(Py_BuildValue("{s:d,s:d}", "trace", entry.phases.trace, "install", entry.phases.install)));
  Ref wanted = Ref::steal(PyObject_CallMethod(compilation.listener.get(), "wants_details", nullptr));
  if (!wanted) throw PyError();
  if (truth(wanted).value()) add_details(event, point, entry);
  notify(compilation, "added", event);
}

// What the listener makes of `fields`; without one, a RuntimeError.
[[noreturn]] static void raise_made(const Compilation& compilation, const char* method, Borrowed fields,
                                    const std::string& otherwise) {
  if (compilation.listener) {
    Ref error = checked(PyObject_CallMethod(compilation.listener.get(), method, "O", fields.get()));
    PyErr_SetObject(reinterpret_cast<PyObject*>(error.type()), error.get());
  } else {
    PyErr_SetString(PyExc_RuntimeError, otherwise.c_str());
  }
  throw PyError();
}

void raise_break(const Compilation& compilation, const report::Break& event, const char* flag) {
  Ref dict = event.as_dict();
  set(dict, "flag", text(flag));
  raise_made(compilation, "refusal", dict,
             std::string("alternator: ") + flag + ", but there is a break\n" + event.text());
}

void raise_limit(const Compilation& compilation, const report::Break& event, const char* flag) {
  Ref dict = event.as_dict();
  set(dict, "flag", text(flag));
  raise_made(compilation, "limit_hit", dict, std::string("alternator: ") + flag + "\n" + event.text());
}

// As torch writes it: "[2, int_oo]".
static std::string range_text(const shapes::Interval& range) {
  return "[" + (range.has_low() ? std::to_string(range.low) : "-int_oo") + ", " +
         (range.has_high() ? std::to_string(range.high) : "int_oo") + "]";
}

static Ref describe(const lift::SymbolFate& symbol) {
  static constexpr const char* kReasons[] = {"none",
                                             "it differs between calls",
                                             "it varies at the graph break before",
                                             "dynamic=True",
                                             "dynamic_sources",
                                             "maybe_mark_dynamic",
                                             "mark_dynamic",
                                             "shapes_spec"};
  Ref dict = checked(PyDict_New()), lines = checked(PyList_New(0));
  for (const lift::Site& site : symbol.sites) {
    auto* code = site.code.as<PyCodeObject>();
    const int line = PyCode_Addr2Line(code, site.index * static_cast<int>(sizeof(uint16_t)));
    check_status(PyList_Append(lines.get(), report::as_dict(report::Line{site.code, line, site.index}).get()));
  }
  set(dict, "name", text(symbol.text()));
  set(dict, "value", Ref(symbol.hint));
  set(dict, "why", text(kReasons[static_cast<size_t>(symbol.why)]));
  set(dict, "fixed", boolean(symbol.is_fixed));
  set(dict, "lines", std::move(lines));
  set(dict, "reason", text(symbol.reason));
  set(dict, "given", text(range_text(symbol.given)));
  set(dict, "range", text(range_text(symbol.found)));
  set(dict, "narrowed", boolean(!symbol.is_fixed && symbol.is_narrowed()));
  set(dict, "torchs_name", text(symbol.torchs_name));
  return dict;
}

void report_symbols(const Compilation& compilation, const ResumePoint& point, const Entry& entry) {
  if (!compilation.listener || entry.symbols.empty()) return;
  Ref symbols = checked(PyList_New(0)), event = checked(PyDict_New());
  for (const lift::SymbolFate& symbol : entry.symbols)
    check_status(PyList_Append(symbols.get(), describe(symbol).get()));
  set(event, "resumed_at", lines_of(point.shape));
  set(event, "symbols", std::move(symbols));
  Ref wanted = Ref::steal(PyObject_CallMethod(compilation.listener.get(), "wants_conditions", nullptr));
  if (!wanted) throw PyError();
  Ref conditions = checked(PyList_New(0));
  for (const guards::Explanation& guard :
       truth(wanted).value() ? entry.guards->all() : std::vector<guards::Explanation>())
    if (guard.kind == "kSize") check_status(PyList_Append(conditions.get(), describe(guard).get()));
  set(event, "conditions", std::move(conditions));
  notify(compilation, "symbolic", event);
}

void raise_violation(const Compilation& compilation, const std::vector<const lift::SymbolFate*>& symbols) {
  Ref list = checked(PyList_New(0));
  std::string names;
  for (const lift::SymbolFate* symbol : symbols) {
    check_status(PyList_Append(list.get(), describe(*symbol).get()));
    names += (names.empty() ? "" : ", ") + symbol->text();
  }
  raise_made(compilation, "violation", list, "alternator: specialized on sizes that are marked as dynamic: " + names);
}

}  // namespace alternator::dispatch
