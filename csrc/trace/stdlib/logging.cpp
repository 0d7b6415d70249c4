// Logging: whether a record is enabled is decided while tracing, and guarded; the residual program creates and handles
// an enabled record. The handlers must be the standard library's: other code could observe objects before the program's
// writes are applied to them.
#include "trace/stdlib/logging.h"
#include "cpython/objects.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/namespaces.h"
#include "lift/lifting/write_log.h"
#include "py/import.h"
#include "py/lasting.h"
#include "trace/calls/handlers.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/attributes.h"
#include "trace/opcodes/items.h"
#include "trace/stdlib/output_effects.h"

namespace alternator::trace {

namespace {

struct Library {
  PyObject *module, *logger, *root_logger, *source_file, *record, *get_logger, *place_holder, *is_enabled;
  PyTypeObject* logger_type() const { return reinterpret_cast<PyTypeObject*>(logger); }
};

const Library& library() {
  static constinit Lasting<Library> lasting;
  return lasting.get([] {
    PyObject* module = import_module("logging").release();
    auto of = [&](const char* name) { return checked(PyObject_GetAttrString(module, name)).release(); };
    PyObject* get_logger = checked(PyObject_GetAttrString(of("Manager"), "getLogger")).release();
    PyObject* is_enabled = checked(PyObject_GetAttrString(of("Logger"), "isEnabledFor")).release();
    return Library{module,          of("Logger"), of("RootLogger"),  of("_srcfile"),
                   of("LogRecord"), get_logger,   of("PlaceHolder"), is_enabled};
  });
}

Ref name_of(const char* text) { return checked(PyUnicode_InternFromString(text)); }

// Classes whose code is known: it writes to a stream and does nothing else.
bool is_of_the_library(PyTypeObject* type) {
  PyObject* module = PyDict_GetItemString(cpython::own_dict(type), "__module__");
  return module != nullptr && PyUnicode_Check(module) &&
         (PyUnicode_CompareWithASCIIString(module, "logging") == 0 ||
          PyUnicode_CompareWithASCIIString(module, "_pytest.logging") == 0);
}

bool is_library_code(Borrowed method) {
  PyObject* function = PyMethod_Check(method.get()) ? PyMethod_GET_FUNCTION(method.get()) : method.get();
  if (!PyFunction_Check(function)) return false;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  return PyUnicode_Compare(code->co_filename, library().source_file) == 0;
}

// Whether the cache of a logger has this level, which the first isEnabledFor() adds.
bool remembers_level(const lift::Lifter& lifter, Borrowed logger, Borrowed level) {
  const lift::Known* known = lifter.known(logger);
  PyObject** dict = known != nullptr && known->original ? _PyObject_GetDictPtr(known->original.get()) : nullptr;
  Borrowed cache = dict != nullptr && *dict != nullptr ? PyDict_GetItemString(*dict, "_cache") : nullptr;
  return !cache || !PyDict_CheckExact(cache.get()) || contains(cache, level).value();
}

bool is_empty_list(Borrowed value) { return PyList_CheckExact(value.get()) && PyList_GET_SIZE(value.get()) == 0; }

}  // namespace

// logging.Manager.getLogger(): an existing logger is read without the lock that protects logger creation.
static Ref find_logger(Tracer& t, const Call& call) {
  if (!call.has_positional(2) || !PyUnicode_CheckExact(call.arguments[1])) return {};
  Ref loggers = get_attribute(t, call.arguments[0], name_of("loggerDict"));
  if (!PyDict_CheckExact(loggers.get()) || !contains(t, loggers, call.arguments[1])) return {};
  Ref found = get_item(t, loggers, call.arguments[1]);
  return Py_IS_TYPE(found.get(), reinterpret_cast<PyTypeObject*>(library().place_holder)) ? Ref() : std::move(found);
}

// A standard library logger, with none of its methods replaced.
static void check_logger(Tracer& t, Borrowed logger) {
  lift::Known* known = t.lifter.known(logger);
  if (known == nullptr || !known->instance ||
      (logger.type() != library().logger_type() &&
       logger.type() != reinterpret_cast<PyTypeObject*>(library().root_logger))) {
    stop(report::Reason::native_call, "a logger of another class");
  }
  for (const char* part :
       {"isEnabledFor", "getEffectiveLevel", "_log", "makeRecord", "handle", "callHandlers", "findCaller", "filter"}) {
    if (!is_library_code(get_attribute(t, logger, name_of(part))))
      stop(report::Reason::native_call, "a logger of another kind");
  }
}

// Logger.isEnabledFor(), without its lock. Its cache is not guarded: it gives the same answer.
static bool is_logged(Tracer& t, Borrowed logger, long level) {
  if (truth(t, get_attribute(t, logger, name_of("disabled"))).value()) return false;
  if (Ref asked = checked(PyLong_FromLong(level)); !remembers_level(t.lifter, logger, asked))
    t.output->add_effect(library().is_enabled, checked(PyTuple_Pack(2, logger.get(), asked.get())), {});
  auto number = [&](Borrowed value) {
    if (!PyLong_CheckExact(value.get())) stop(report::Reason::native_call, "logging with a level that is no int");
    return PyLong_AsLong(value.get());
  };
  Ref manager = get_attribute(t, logger, name_of("manager"));
  if (number(get_attribute(t, manager, name_of("disable"))) >= level) return false;
  for (Ref at = Ref::share(logger); at.get() != Py_None; at = get_attribute(t, at, name_of("parent"))) {
    const long own = number(get_attribute(t, at, name_of("level")));
    if (own != 0) return level >= own;
  }
  return level >= 0;
}

// The record is handled by the real objects, which the program's writes reach after all output.
void check_unwritten(Tracer& t, Borrowed object) {
  const lift::Known* known = t.lifter.known(object);
  const lift::Shadow* own =
      known != nullptr && known->shadow != nullptr ? known->shadow : t.lifter.namespaces->attributes(object);
  if (own != nullptr && lift::is_written(*own))
    stop(report::Reason::native_call, "something is shown after a change of how it is shown");
}

static void check_handler(Tracer& t, Borrowed handler) {
  PyTypeObject* type = handler.type();
  auto refuse = [&] {
    stop(report::Reason::native_call, std::string("a logging handler of the type ") + type->tp_name);
  };
  if (!is_of_the_library(type)) refuse();
  t.lifter.classes->use_special_methods(type);
  for (const char* name : {"handle", "emit", "format", "filter"}) {
    Borrowed method = t.lifter.classes->attribute(type, name_of(name));
    if (!method || !PyFunction_Check(method.get())) refuse();
  }
  if (lift::Shadow* own = t.lifter.namespaces->attributes(handler)) {
    for (const char* name : {"handle", "emit", "format", "filter", "flush"}) {
      if (t.lifter.containers->dict_item(*own, name_of(name))) refuse();
    }
  }
  if (!is_empty_list(get_attribute(t, handler, name_of("filters")))) refuse();
  Ref formatter = get_attribute(t, handler, name_of("formatter"));
  if (formatter.get() != Py_None) {
    if (!is_of_the_library(formatter.type())) refuse();
    check_unwritten(t, formatter);
    check_unwritten(t, get_attribute(t, formatter, name_of("_style")));
  }
  Ref stream;
  try {
    stream = get_attribute(t, handler, name_of("stream"));
  } catch (const PyError&) {
    if (t.result.stopped || !PyErr_ExceptionMatches(PyExc_AttributeError)) throw;
    PyErr_Clear();
  }
  if (stream) t.output->check_stream(stream, "a stream of a logging handler");
}

static void check_handlers(Tracer& t, Borrowed logger, long level) {
  size_t found = 0;
  if (lift::is_written(t.lifter.namespaces->of_globals(PyModule_GetDict(library().module))))
    stop(report::Reason::native_call, "something is logged after a change of the module logging");
  check_unwritten(t, get_attribute(t, library().module, name_of("_levelToName")));
  auto visit = [&](Borrowed handler) {
    check_unwritten(t, handler);
    Ref least = get_attribute(t, handler, name_of("level"));
    if (!PyLong_CheckExact(least.get())) stop(report::Reason::native_call, "a logging handler whose level is no int");
    if (level >= PyLong_AsLong(least.get())) check_handler(t, handler);
  };
  for (Ref at = Ref::share(logger); at.get() != Py_None; at = get_attribute(t, at, name_of("parent"))) {
    check_unwritten(t, at);
    Ref handlers = get_attribute(t, at, name_of("handlers"));
    check_unwritten(t, handlers);
    if (!PyList_CheckExact(handlers.get())) stop(report::Reason::native_call, "logging handlers that are no list");
    t.lifter.escape(handlers);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(handlers.get()); i++, found++) visit(PyList_GET_ITEM(handlers.get(), i));
    if (!truth(t, get_attribute(t, at, name_of("propagate"))).value()) break;
  }
  if (found > 0) return;
  Ref last = get_attribute(t, library().module, name_of("lastResort"));
  if (last.get() != Py_None) visit(last);
}

// Logger.findCaller(): the frames of the library do not count.
static UserFrame find_caller(Tracer& t, Borrowed levels) {
  long up = levels ? PyLong_AsLong(levels.get()) : 1;
  if (up < 1) stop(report::Reason::native_call, "logging with a stacklevel below 1");
  for (const UserFrame& frame : t.output->user_frames()) {
    if (PyUnicode_Compare(frame.code->co_filename, library().source_file) != 0 && --up <= 0) return frame;
  }
  stop(report::Reason::native_call, "logging with a stacklevel outside of the function");
}

// Logger.debug() and the like, and Logger.log(): (self, [level,] msg, *args, extra=None, stacklevel=1, ...).
static void log(Tracer& t, Arguments& given, std::optional<long> fixed_level) {
  const size_t first = fixed_level ? 1 : 2;
  if (given.count() <= first) stop(report::Reason::native_call, "logging without a message");
  Borrowed logger = given[0];
  check_logger(t, logger);
  if (!fixed_level && !PyLong_CheckExact(given[1].get()))
    stop(report::Reason::native_call, "logging with a level that is no int");
  const long level = fixed_level ? *fixed_level : PyLong_AsLong(given[1].get());
  if (!is_logged(t, logger, level)) return;
  for (const char* keyword : {"exc_info", "stack_info"}) {
    Borrowed value = given.keyword(keyword);
    if (value && value.get() != Py_None && value.get() != Py_False)
      stop(report::Reason::native_call, "logging with exc_info");
  }
  Borrowed levels = given.keyword("stacklevel"), extra = given.keyword("extra");
  if ((levels && !PyLong_CheckExact(levels.get())) || (extra && extra.get() != Py_None) || !given.all_taken())
    stop(report::Reason::native_call, "logging with other arguments than a message");
  if (get_attribute(t, library().module, name_of("_logRecordFactory")).get() != library().record ||
      !is_empty_list(get_attribute(t, logger, name_of("filters")))) {
    stop(report::Reason::native_call, "logging through user code");
  }
  check_handlers(t, logger, level);

  const UserFrame caller = find_caller(t, levels);
  Ref message = t.output->freeze(given[first]);
  Ref arguments = checked(PyTuple_New(static_cast<Py_ssize_t>(given.count() - first - 1)));
  for (size_t i = first + 1; i < given.count(); i++) {
    Ref frozen = t.output->freeze(given[i]);
    if (!frozen) stop(report::Reason::native_call, "an object that may change is logged");
    PyTuple_SET_ITEM(arguments.get(), static_cast<Py_ssize_t>(i - first - 1), frozen.release());
  }
  if (!message) stop(report::Reason::native_call, "an object that may change is logged");
  t.output->add_effect(log_function(),
                       checked(Py_BuildValue("(OlOiOOO)", logger.get(), level, caller.code->co_filename, caller.line,
                                             message.get(), arguments.get(), caller.code->co_name)),
                       {});
}

template <long kLevel>
static Ref log_at_level(Tracer& t, const Call& call) {
  Arguments given(call);
  log(t, given, kLevel);
  return Ref::share(Py_None);
}

bool register_logging(Handlers& handlers) {
  PyTypeObject* logger = library().logger_type();
  handlers.add_methods(logger, "debug", log_at_level<10>);
  handlers.add_methods(logger, "info", log_at_level<20>);
  handlers.add_methods(logger, "warning", log_at_level<30>);
  handlers.add_methods(logger, "error", log_at_level<40>);
  handlers.add_methods(logger, "critical", log_at_level<50>);
  handlers.add_methods(logger, "log", [](Tracer& t, const Call& call) {
    Arguments given(call);
    log(t, given, std::nullopt);
    return Ref::share(Py_None);
  });
  handlers.add(library().is_enabled, [](Tracer& t, const Call& call) {
    if (!call.has_positional(2) || !PyLong_CheckExact(call.arguments[1])) return Ref();
    check_logger(t, call.arguments[0]);
    return Ref::share(is_logged(t, call.arguments[0], PyLong_AsLong(call.arguments[1])) ? Py_True : Py_False);
  });
  handlers.add(library().get_logger, find_logger);
  return true;
}

}  // namespace alternator::trace
