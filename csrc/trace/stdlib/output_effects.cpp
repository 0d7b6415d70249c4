// Calls that are made for their output: print, warnings. They are not executed while tracing; the residual program
// executes them, with real tensors. Their other arguments are fixed here: plain values as they are, everything else as
// its string.
#include "trace/stdlib/output_effects.h"
#include "trace/opcodes/items.h"
#include "trace/stdlib/logging.h"
#include "trace/torch/torch_calls.h"

#include "fake/python_tensor.h"
#include "graph/record/torch_warnings.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/namespaces.h"
#include "lift/lifting/write_log.h"
#include "py/import.h"
#include "py/lasting.h"
#include "trace/calls/handlers.h"
#include "trace/calls/natives.h"
#include "trace/core/tracer.h"
#include "trace/soundness/value_text.h"

#include <ATen/PythonTorchFunctionTLS.h>

#include <unordered_map>

namespace alternator::trace {

// --- strings that are their own repr ----------------------------------------------------------------------------

// A string that is its own repr: in a container it replaces an object that was converted when the program printed it.
static PyTypeObject shown_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

int init_effects() {
  shown_type.tp_name = "alternator.Shown";
  shown_type.tp_base = &PyUnicode_Type;
  shown_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  shown_type.tp_repr = [](PyObject* self) { return PyObject_Str(self); };
  return PyType_Ready(&shown_type);
}

static Ref make_shown(Borrowed text) {
  Ref arguments = checked(PyTuple_Pack(1, text.get()));
  return checked(PyUnicode_Type.tp_new(&shown_type, arguments.get(), nullptr));
}

// --- what the residual program calls ------------------------------------------------------------------------------

static Ref registry_of(Borrowed globals) {
  Ref name = checked(PyUnicode_InternFromString("__warningregistry__"));
  Ref empty = checked(PyDict_New());
  return Ref::share(PyDict_SetDefault(globals.get(), name.get(), empty.get()));
}

// warn_at(message, category, filename, line, globals): what warnings.warn() does in a frame with these globals.
static PyObject* warn_at(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  return guarded([&]() -> Ref {
    Borrowed globals = arguments[4];
    Ref registry = checked(registry_of(globals));
    PyObject* found = PyDict_GetItemString(globals.get(), "__name__");
    Ref module = found != nullptr && (found == Py_None || PyUnicode_Check(found))
                     ? Ref::share(found)
                     : checked(PyUnicode_FromString("<string>"));
    check_status(PyErr_WarnExplicitObject(arguments[1], arguments[0], arguments[2],
                                          static_cast<int>(PyLong_AsLong(arguments[3])), module.get(), registry.get()));
    return Ref::share(Py_None);
  });
}

// warn_above(message, category, level): the same in a frame that many levels above the compiled function.
static PyObject* warn_above(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  if (PyErr_WarnFormat(arguments[1], PyLong_AsSsize_t(arguments[2]), "%U", arguments[0]) < 0) return nullptr;
  return Py_NewRef(Py_None);
}

// log_at(logger, level, filename, line, message, arguments, function): what Logger._log() does at that location.
static PyObject* log_at(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  return guarded([&]() -> Ref {
    Borrowed logger = arguments[0];
    Ref name = checked(PyObject_GetAttrString(logger.get(), "name"));
    Ref record =
        checked(PyObject_CallMethod(logger.get(), "makeRecord", "OOOOOOOOOO", name.get(), arguments[1], arguments[2],
                                    arguments[3], arguments[4], arguments[5], Py_None, arguments[6], Py_None, Py_None));
    return checked(PyObject_CallMethod(logger.get(), "handle", "O", record.get()));
  });
}

static Borrowed own_function(PyMethodDef* method) {
  static std::unordered_map<PyMethodDef*, PyObject*> made;
  PyObject*& function = made[method];
  if (function == nullptr) function = checked(PyCFunction_New(method, nullptr)).release();
  return function;
}

// give_warnings(count): emits the torch warnings from the first `count` locations of the trace.
static PyObject* give_warnings(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  try {
    graph::WarningsInTurn::give_until(static_cast<size_t>(PyLong_AsSsize_t(arguments[0])));
    Py_RETURN_NONE;
  } catch (const PyError&) {
    return nullptr;
  }
}

#define ALT_FAST(function) reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function))
static PyMethodDef warn_at_method = {"warn_at", ALT_FAST(warn_at), METH_FASTCALL, nullptr};
static PyMethodDef warn_above_method = {"warn_above", ALT_FAST(warn_above), METH_FASTCALL, nullptr};
static PyMethodDef give_warnings_method = {"give_warnings", ALT_FAST(give_warnings), METH_FASTCALL, nullptr};
static PyMethodDef log_at_method = {"log_at", ALT_FAST(log_at), METH_FASTCALL, nullptr};
#undef ALT_FAST

Borrowed log_function() { return own_function(&log_at_method); }

// --- arguments ------------------------------------------------------------------------------------------------------

Borrowed Arguments::keyword(const char* name) {
  for (size_t i = 0; i < call_.keywords(); i++) {
    PyObject* given = PyTuple_GET_ITEM(call_.keyword_names.get(), static_cast<Py_ssize_t>(i));
    if (PyUnicode_CompareWithASCIIString(given, name) != 0) continue;
    taken_++;
    return call_.arguments[call_.positional + i];
  }
  return {};
}

void OutputEffects::add_effect(Borrowed callable, Ref arguments, Ref keywords) {
  // torch warnings that were raised meanwhile are shown before.
  if (const size_t warnings = graph::new_warnings(); warnings > 0) {
    Borrowed giver = own_function(&give_warnings_method);
    t.lifter.note_constant(giver);
    t.lifter.write_log->add_effect(
        {Ref::share(giver), checked(Py_BuildValue("(n)", static_cast<Py_ssize_t>(warnings))), {}});
  }
  t.lifter.note_constant(callable);
  t.lifter.write_log->add_effect({Ref::share(callable), std::move(arguments), std::move(keywords)});
}

// --- what is shown ------------------------------------------------------------------------------------------------

// A tensor is converted to a string after the graph has run. One that does not require grad is cloned, since it may be
// mutated until then; the string of the others shows how they were computed, and is right only if they are not mutated.
Ref OutputEffects::show_tensor(Borrowed tensor) {
  static constinit Lasting<PyObject*> lasting;
  Borrowed options = lasting.get(
      [] { return checked(PyObject_GetAttrString(import_module("torch._tensor_str").get(), "PRINT_OPTS")).release(); });
  if (t.lifter.is_lifted(options.get())) check_unwritten(t, t.lifter.lift(options, t.lifter.constant(options)));
  if (t.is_transformed()) stop(report::Reason::tensor_text, "inside of a transform");
  // The string is made after the graph has run: the __torch_function__ would run then.
  if (graph::has_own_torch_function(tensor.type()))
    stop(report::Reason::tensor_text, "of a tensor with a __torch_function__");
  const at::Tensor& fake = fake::unpack(tensor.get());
  if (!fake.requires_grad() && tensor.type() == reinterpret_cast<PyTypeObject*>(THPVariableClass)) {
    if (at::impl::PythonTorchFunctionTLS::stack_len() > 1)
      stop(report::Reason::native_call, "a tensor is shown under a torch-function mode");
    PyObject* arguments[] = {nullptr, tensor.get()};
    static constinit Lasting<PyObject*> clone;
    return call_torch(
        t, {clone.get([] { return checked(PyObject_GetAttrString(import_module("torch").get(), "clone")).release(); }),
            arguments + 1,
            1,
            {}});
  }
  note_shown(tensor);
  return Ref::share(tensor);
}

void OutputEffects::note_shown(Borrowed tensor) {
  shown_.push_back({Ref::share(tensor), t.recorder.program().nodes.size()});
}

bool OutputEffects::shown_changed() {
  graph::Program& program = t.recorder.program();
  for (const Shown& shown : shown_) {
    const at::Tensor& tensor = fake::unpack(shown.tensor.get());
    for (size_t i = shown.position; i < program.nodes.size(); i++) {
      const graph::Node& node = program.nodes[i];
      if ((node.effects & (graph::kMutates | graph::kActs)) == 0) continue;
      bool touches = program.has_arrays;
      program.each_tensor_argument(node, [&](uint32_t id) {
        const at::Tensor& argument = program.tensors[id].fake;
        if (!argument.defined()) return;  // a scalar
        touches = touches || argument.is_same(tensor) || !argument.has_storage() || !tensor.has_storage() ||
                  argument.storage().unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl();
      });
      if (touches) return true;
    }
  }
  return false;
}

static bool is_basic(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  return value == Py_None || type == &PyBool_Type || type == &PyLong_Type || type == &PyFloat_Type ||
         type == &PyComplex_Type || type == &PyUnicode_Type || type == &PyBytes_Type;
}

// Nothing that happens later in the call changes the snapshot.
Ref OutputEffects::freeze(Borrowed value, int depth) {
  constexpr int kDeepest = 20;
  PyObject* v = value.get();
  // Not an enum member: its class may define its string.
  if (lift::is_plain(v) && (Py_TYPE(v)->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return Ref::share(value);
  if (graph::is_tensor(value)) return show_tensor(value);
  if (fake::is_symbol(value)) return Ref::share(value);  // a scalar by then
  if (lift::is_number_array(v)) {                        // its string depends on numpy's print options when it is shown
    check_use(t, value, "text");
    return checked(PyObject_CallMethod(v, "copy", "s", "K"));
  }
  if (depth > kDeepest) stop(report::Reason::native_call, "objects that are nested too deeply are shown");
  t.lifter.escape(value);
  const bool is_size = value.type() == graph::torch_types().size;  // of symbols: others are plain
  if (PyList_CheckExact(v) || PyTuple_CheckExact(v) || is_size) {
    Ref items = checked(PySequence_List(v));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); i++) {
      Ref frozen = freeze(PyList_GET_ITEM(items.get(), i), depth + 1);
      if (!frozen) return {};
      check_status(PyList_SetItem(items.get(), i, frozen.release()));
    }
    if (is_size) return checked(PyObject_CallOneArg(reinterpret_cast<PyObject*>(Py_TYPE(v)), items.get()));
    return PyList_CheckExact(v) ? std::move(items) : checked(PyList_AsTuple(items.get()));
  }
  if (PyDict_CheckExact(v)) return freeze_dict(value, depth);
  return shows_text_ ? freeze_text(value, depth) : Ref();
}

Ref OutputEffects::freeze_dict(Borrowed dict, int depth) {
  Ref copy = checked(PyDict_New());
  PyObject *key, *item;
  for (Py_ssize_t position = 0; PyDict_Next(dict.get(), &position, &key, &item);) {
    Ref held = Ref::share(item);
    Ref shown = is_basic(key) ? Ref::share(key) : shows_text_ ? freeze(Ref::share(key), depth + 1) : Ref();
    if (!shown) return {};
    Ref frozen = freeze(held, depth + 1);
    if (!frozen) return {};
    check_status(PyDict_SetItem(copy.get(), shown.get(), frozen.get()));
  }
  // Different keys may have the same string.
  if (PyDict_GET_SIZE(copy.get()) != PyDict_GET_SIZE(dict.get()))
    stop(report::Reason::native_call, "a dict whose keys have the same string is shown");
  return copy;
}

// Its __str__ or __repr__ runs now, as traced code.
Ref OutputEffects::freeze_text(Borrowed value, int depth) {
  if (depth == 0)
    check_own_text(t, value);
  else
    check_text(t, value);
  const size_t before = t.lifter.write_log->effects().size();
  Ref text = Ref::steal(depth == 0 ? PyObject_Str(value.get()) : PyObject_Repr(value.get()));
  if (!text && t.result.stopped) throw PyError();
  if (!text) {  // eager has written the preceding arguments by then
    PyErr_Clear();
    stop(report::Reason::native_call, "print of an object whose string conversion raises");
  }
  if (t.lifter.write_log->effects().size() != before)
    stop(report::Reason::native_call, "print of an object that prints");
  if (depth == 0) return checked(PyUnicode_FromObject(text.get()));
  Ref shown = make_shown(checked(PyUnicode_FromObject(text.get())));
  t.lifter.note_constant(shown);
  return shown;
}

// The stream must be native: other code could observe objects before the program's writes are applied to them.
void OutputEffects::check_stream(Borrowed stream, const char* what) {
  if (stream.get() == Py_None) return;
  for (const char* name : {"write", "flush"}) {
    Ref text = checked(PyUnicode_InternFromString(name));
    Borrowed method = t.lifter.classes->attribute(stream.type(), text);
    if (!method || !Py_IS_TYPE(method.get(), &PyMethodDescr_Type))
      stop(report::Reason::native_call, std::string(what) + " that Python code implements");
  }
}

// --- print ----------------------------------------------------------------------------------------------------------

void OutputEffects::print(Arguments& given) {
  Ref keywords = checked(PyDict_New());
  const auto take = [&](const char* name, bool is_flag) {
    Borrowed value = given.keyword(name);
    if (!value) return;
    const bool is_text = PyUnicode_Check(value.get()) || value.get() == Py_None;
    if (!is_basic(value.get()) || (!is_text && !is_flag))
      stop(report::Reason::native_call, std::string("print with ") + name);
    check_status(PyDict_SetItemString(keywords.get(), name, value.get()));
  };
  take("sep", false);
  take("end", false);
  take("flush", true);
  Borrowed file = given.keyword("file");
  if (!given.all_taken()) stop(report::Reason::native_call, "print");
  if (file && file.get() != Py_None) {
    lift::Known* known = t.lifter.known(file);
    if (known == nullptr || !known->opaque) stop(report::Reason::native_call, "print to an object of Python code");
    check_stream(file, "a file");
    check_status(PyDict_SetItemString(keywords.get(), "file", file.get()));
  } else {
    static constinit Lasting<PyObject*> sys;
    Borrowed module = sys.get([] { return import_module("sys").release(); });
    Ref name = checked(PyUnicode_InternFromString("stdout"));
    Ref stream = t.lifter.containers->dict_item(t.lifter.namespaces->of_globals(PyModule_GetDict(module.get())), name);
    PyObject* real = PySys_GetObject("stdout");
    if (!stream || stream.get() != real) stop(report::Reason::native_call, "print after a change of sys.stdout");
    check_stream(stream, "a sys.stdout");
  }
  Ref shown = checked(PyTuple_New(static_cast<Py_ssize_t>(given.count())));
  shows_text_ = true;
  for (size_t i = 0; i < given.count(); i++) {
    Ref frozen = freeze(given[i]);
    if (!frozen) stop(report::Reason::native_call, "print of what cannot be shown later");
    PyTuple_SET_ITEM(shown.get(), static_cast<Py_ssize_t>(i), frozen.release());
  }
  shows_text_ = false;
  add_effect(Natives::table().print, std::move(shown), std::move(keywords));
}

// --- warnings -------------------------------------------------------------------------------------------------------

std::vector<UserFrame> OutputEffects::user_frames() const {
  std::vector<UserFrame> frames;
  cpython::Frame* frame = cpython::current_frame(PyThreadState_Get());
  for (; frame != nullptr && frame != outermost; frame = frame->previous) {
    if (cpython::is_incomplete(frame)) continue;
    PyCodeObject* code = cpython::code_of(frame);
    frames.push_back(
        {code, cpython::function_of(frame)->func_globals,
         PyCode_Addr2Line(code, cpython::current_index(frame) * static_cast<int>(sizeof(cpython::CodeUnit)))});
  }
  return frames;
}

static bool is_changed(const lift::Shadow& shadow, const char* name) {
  return PyDict_GetItemString(shadow.copy.get(), name) != PyDict_GetItemString(shadow.snapshot.get(), name);
}

// The list of a bound `list.append`; null: it is something else.
static Borrowed recording_list(Borrowed shows) {
  const PyMethodDef* append = reinterpret_cast<PyMethodDescrObject*>(Natives::table().list_append)->d_method;
  if (!PyCFunction_Check(shows.get()) || shows.as<PyCFunctionObject>()->m_ml != append) return {};
  PyObject* list = PyCFunction_GET_SELF(shows.get());
  return list != nullptr && PyList_CheckExact(list) ? list : nullptr;
}

Borrowed recorded_warnings() {
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), "warnings");
  PyObject* shows = module != nullptr && PyModule_Check(module)
                        ? PyDict_GetItemString(PyModule_GetDict(module), "_showwarnmsg_impl")
                        : nullptr;
  return shows != nullptr ? recording_list(shows) : Borrowed();
}

static bool is_function_of(Borrowed function, const char* module) {
  if (!PyFunction_Check(function.get())) return false;
  PyObject* name = function.as<PyFunctionObject>()->func_module;
  return name != nullptr && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, module) == 0;
}

// A filter that turns the warning into an error is a break; its absence is guarded.
void OutputEffects::check_filters(Borrowed category) {
  static constinit Lasting<PyObject*> lasting;
  Borrowed module = lasting.get([] { return import_module("warnings").release(); });
  lift::Shadow& names = t.lifter.namespaces->of_globals(PyModule_GetDict(module.get()));
  Ref filters_name = checked(PyUnicode_InternFromString("filters"));
  Ref filters = t.lifter.containers->dict_item(names, filters_name);
  for (const char* name : {"filters", "defaultaction", "onceregistry", "showwarning", "_showwarnmsg",
                           "_showwarnmsg_impl", "formatwarning", "_formatwarnmsg", "_formatwarnmsg_impl"}) {
    if (is_changed(names, name)) stop(report::Reason::native_call, "a warning after a change of warnings");
  }
  lift::Known* known = filters ? t.lifter.known(filters) : nullptr;
  if (known == nullptr || known->shadow == nullptr || !PyList_CheckExact(filters.get()))
    stop(report::Reason::native_call, "warnings.filters is not a list");
  const auto named = [&](const char* name) {
    return t.lifter.containers->dict_item(names, checked(PyUnicode_InternFromString(name)));
  };
  if (named("showwarning").get() != named("_showwarning_orig").get() ||
      named("formatwarning").get() != named("_formatwarning_orig").get())
    stop(report::Reason::native_call, "a warning that user code shows");
  // They may be recorded (catch_warnings(record=True)): in a list that nothing may read meanwhile.
  Borrowed shows = PyDict_GetItemString(names.original.get(), "_showwarnmsg_impl");
  if (shows && recording_list(shows)) {
    t.tree->guard(
        t.tree->child(names.source, lift::Access::kItem, checked(PyUnicode_InternFromString("_showwarnmsg_impl"))),
        {lift::GuardKind::kType, Ref::share(reinterpret_cast<PyObject*>(shows.type()))});
  } else if (!shows || !is_function_of(named("_showwarnmsg_impl"), "warnings")) {
    stop(report::Reason::native_call, "a warning that user code shows");
  }
  lift::Source* source = known->source;
  t.lifter.containers->lift_whole(*known->shadow);
  Ref original = Ref::share(t.lifter.known(filters)->original);
  if (PyList_GET_SIZE(original.get()) != PyList_GET_SIZE(filters.get()))
    stop(report::Reason::native_call, "a warning after a change of warnings.filters");
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(filters.get()); i++) {
    Borrowed filter = PyList_GET_ITEM(filters.get(), i);
    if (!PyTuple_CheckExact(filter.get()) || PyTuple_GET_SIZE(filter.get()) != 5 ||
        filter.get() != PyList_GET_ITEM(original.get(), i)) {
      stop(report::Reason::native_call, "a warning under a filter of an unknown kind");
    }
    lift::Source* element = t.tree->child(source, lift::Access::kIndex, {}, i);
    for (Py_ssize_t part : {1, 3}) {
      Borrowed pattern = PyTuple_GET_ITEM(filter.get(), part);
      if (pattern.get() != Py_None)
        t.tree->guard(t.tree->child(element, lift::Access::kIndex, {}, part),
                      {lift::GuardKind::kIs, Ref::share(pattern)});
    }
    Borrowed action = PyTuple_GET_ITEM(filter.get(), 0), about = PyTuple_GET_ITEM(filter.get(), 2);
    const bool is_error = PyUnicode_Check(action.get()) && PyUnicode_CompareWithASCIIString(action.get(), "error") == 0;
    if (is_error &&
        (!PyType_Check(about.get()) || PyType_IsSubtype(category.as<PyTypeObject>(), about.as<PyTypeObject>()) != 0)) {
      stop(report::Reason::native_call, "a warning that a filter turns into an error");
    }
  }
  Ref default_name = checked(PyUnicode_InternFromString("defaultaction"));
  Ref action = t.lifter.containers->dict_item(names, default_name);
  if (!action || !PyUnicode_CheckExact(action.get()) || PyUnicode_CompareWithASCIIString(action.get(), "error") == 0)
    stop(report::Reason::native_call, "a warning whose default is an error");
}

void OutputEffects::warn(Arguments& given) {
  auto argument = [&](size_t position, const char* name) {
    Borrowed named = given.keyword(name);
    return named ? named : position < given.count() ? given[position] : Borrowed();
  };
  Borrowed message = argument(0, "message"), category = argument(1, "category"), level = argument(2, "stacklevel"),
           source = argument(3, "source");
  if (!given.all_taken() || given.count() > 4) stop(report::Reason::native_call, "warnings.warn");
  if (!category || category.get() == Py_None) category = PyExc_UserWarning;
  const bool known_kind = message && PyUnicode_CheckExact(message.get()) && PyType_Check(category.get()) &&
                          !t.lifter.made_here(category) &&
                          PyType_IsSubtype(category.as<PyTypeObject>(), reinterpret_cast<PyTypeObject*>(PyExc_Warning));
  if (!known_kind || (source && source.get() != Py_None) || (level && !PyLong_CheckExact(level.get())))
    stop(report::Reason::native_call, "a warning that is not a string");
  t.lifter.classes->use_special_methods(category.as<PyTypeObject>());
  check_filters(category);
  const Py_ssize_t levels = level ? PyLong_AsSsize_t(level.get()) : 1;
  if (levels < 1) stop(report::Reason::native_call, "a warning with a stacklevel below 1");
  std::vector<UserFrame> frames = user_frames();
  for (const UserFrame& frame : frames) {
    const char* file = PyUnicode_AsUTF8(frame.code->co_filename);
    if (file == nullptr) throw PyError();
    if (strstr(file, "importlib") != nullptr && strstr(file, "_bootstrap") != nullptr)
      stop(report::Reason::native_call, "a warning while a module is imported");
  }
  if (static_cast<size_t>(levels) > frames.size()) {
    const auto above = static_cast<Py_ssize_t>(static_cast<size_t>(levels) - frames.size());
    add_effect(own_function(&warn_above_method), checked(Py_BuildValue("(OOn)", message.get(), category.get(), above)),
               {});
    return;
  }
  const UserFrame& frame = frames[static_cast<size_t>(levels) - 1];
  t.lifter.note_constant(frame.globals);
  add_effect(own_function(&warn_at_method),
             checked(Py_BuildValue("(OOOiO)", message.get(), category.get(), frame.code->co_filename, frame.line,
                                   frame.globals)),
             {});
}

// --- handlers -------------------------------------------------------------------------------------------------------

bool register_output(Handlers& handlers) {
  handlers.add("builtins", "print", [](Tracer& t, const Call& call) {
    Arguments given(call);
    t.output->print(given);
    return Ref::share(Py_None);
  });
  handlers.add("_warnings", "warn", [](Tracer& t, const Call& call) {
    Arguments given(call);
    t.output->warn(given);
    return Ref::share(Py_None);
  });
  // Resets which warnings were shown; to warn under changed filters is a break.
  handlers.add("_warnings", "_filters_mutated", [](Tracer& t, const Call& call) {
    if (!call.has_positional(0)) return Ref();
    t.recorder.refuse_warnings();
    t.output->add_effect(call.callable, checked(PyTuple_New(0)), {});
    return Ref::share(Py_None);
  });
  return true;
}

}  // namespace alternator::trace
