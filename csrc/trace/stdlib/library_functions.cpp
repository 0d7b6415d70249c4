#include "trace/stdlib/library_functions.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"

#include "cpython/objects.h"
#include "py/import.h"
#include "py/lasting.h"
#include "trace/calls/handlers.h"
#include "trace/calls/native_reads.h"
#include "trace/calls/natives.h"

#include <unordered_map>

namespace alternator::trace {

namespace {

struct Library {
  PyObject* re_compile;   // re._compile, behind all functions of re
  PyObject* re_cache;     // its cache
  PyObject* sre_compile;  // what makes a pattern
  // C functions that themselves traverse objects, and the standard library's Python implementations of them.
  std::unordered_map<PyObject*, PyObject*> twins;
};

const Library& library() {
  static constinit Lasting<const Library*> lasting;
  return *lasting.get([] {
    auto of = [](const char* module_name, const char* name) {
      return checked(PyObject_GetAttrString(import_module(module_name).get(), name)).release();
    };
    auto* found = new Library;
    found->re_compile = of("re", "_compile");
    found->re_cache = of("re", "_cache");
    found->sre_compile = of("re._compiler", "compile");
    // Only the twins look these up; a first look-up imports.
    for (const char* codec : {"raw-unicode-escape", "unicode-escape", "latin-1"}) {
      if (!Ref::steal(_PyCodec_Lookup(codec))) PyErr_Clear();
    }
    for (const char* name : {"dumps", "loads"})
      found->twins[of("_pickle", name)] = of("pickle", (std::string("_") + name).c_str());
    return found;
  });
}

bool is_text(Borrowed object) { return PyUnicode_CheckExact(object.get()) || PyBytes_CheckExact(object.get()); }

constexpr long kDebugFlag = 128;

}  // namespace

// re caches compiled patterns: the same pattern is the same object as long as the cache has it. The cache is read, not
// mutated.
Ref LibraryFunctions::compile_pattern(Borrowed pattern, Borrowed given_flags) {
  const Library& lib = library();
  Ref flags = checked(PyNumber_Index(given_flags.get()));  // an int, or a member of re.RegexFlag
  flags = checked(PyLong_FromLong(PyLong_AsLong(flags.get())));
  if (PyErr_Occurred()) throw PyError();
  if ((PyLong_AsLong(flags.get()) & kDebugFlag) != 0) stop(report::Reason::native_call, "re.compile with re.DEBUG");
  Ref key = checked(PyTuple_Pack(3, pattern.type(), pattern.get(), flags.get()));
  if (!patterns_) patterns_ = checked(PyDict_New());
  if (PyObject* known = PyDict_GetItemWithError(patterns_.get(), key.get())) return Ref::share(known);
  if (PyErr_Occurred()) throw PyError();
  Ref found = Ref::share(PyDict_GetItemWithError(lib.re_cache, key.get()));
  if (!found) {
    Paused paused(t);
    found = Ref::steal(PyObject_CallFunctionObjArgs(lib.sre_compile, pattern.get(), flags.get(), nullptr));
  }
  if (!found) {
    PyErr_Clear();  // its traceback has frames of re
    stop(report::Reason::native_call, "re.compile, which fails");
  }
  found = t.lifter.lift(found, t.lifter.constant(found));
  check_status(PyDict_SetItem(patterns_.get(), key.get(), found.get()));
  return found;
}

// __import__ of a loaded module: the module itself if names are imported from it, else its top-level package.
static Ref find_imported(const Call& call) {
  PyObject* const* arguments = call.arguments;
  const size_t count = call.positional;
  Borrowed name = count > 0 ? Borrowed(arguments[0]) : Borrowed();
  Borrowed wanted = count > 3 ? Borrowed(arguments[3]) : Borrowed();
  Borrowed level = count > 4 ? Borrowed(arguments[4]) : Borrowed();
  for (size_t i = 0; i < call.keywords(); i++) {
    Borrowed keyword = PyTuple_GET_ITEM(call.keyword_names.get(), static_cast<Py_ssize_t>(i));
    if (PyUnicode_CompareWithASCIIString(keyword.get(), "fromlist") == 0) wanted = arguments[count + i];
    if (PyUnicode_CompareWithASCIIString(keyword.get(), "level") == 0) level = arguments[count + i];
  }
  if (!name || !PyUnicode_CheckExact(name.get()) ||
      (level && !(PyLong_CheckExact(level.get()) && PyLong_AsLong(level.get()) == 0)))
    stop(report::Reason::first_import, "a relative import");
  const bool whole = wanted && (PyTuple_CheckExact(wanted.get()) || PyList_CheckExact(wanted.get())) &&
                     PyObject_Length(wanted.get()) > 0;
  if (wanted && !whole && wanted.get() != Py_None && PyObject_Length(wanted.get()) != 0)
    stop(report::Reason::first_import, "a list of names of another type");
  Ref loaded = Ref::steal(PyImport_GetModule(name.get()));
  if (!loaded || !PyModule_Check(loaded.get())) {
    PyErr_Clear();
    stop(report::Reason::first_import, PyUnicode_AsUTF8(name.get()));
  }
  for (Py_ssize_t i = 0; whole && i < PySequence_Fast_GET_SIZE(wanted.get()); i++) {
    // A name that it lacks could be a submodule.
    Borrowed one = PySequence_Fast_GET_ITEM(wanted.get(), i);
    const bool all = PyUnicode_Check(one.get()) && PyUnicode_CompareWithASCIIString(one.get(), "*") == 0;
    if (all && PyDict_GetItemString(PyModule_GetDict(loaded.get()), "__path__") == nullptr) continue;
    if (!alternator::contains(PyModule_GetDict(loaded.get()), PySequence_Fast_GET_ITEM(wanted.get(), i)).value())
      stop(report::Reason::first_import, PyUnicode_AsUTF8(name.get()));
  }
  if (whole) return loaded;
  const Py_ssize_t dot = PyUnicode_FindChar(name.get(), '.', 0, PyUnicode_GET_LENGTH(name.get()), 1);
  if (dot < 0) return loaded;
  Ref outermost = checked(PyUnicode_Substring(name.get(), 0, dot));
  return checked(PyImport_GetModule(outermost.get()));
}

static Ref call_twin(Tracer& t, const Call& call) {
  const auto twin = library().twins.find(call.callable.get());
  if (twin == library().twins.end()) return {};
  Ref function = t.lifter.lift(twin->second, t.lifter.constant(twin->second));
  try {
    return trace::call(t, call.of(function));
  } catch (const PyError&) {
    if (t.result.stopped) throw;
    PyErr_Clear();  // the twin's message and traceback differ
    stop(report::Reason::native_call, native_name(call.callable) + ", which fails");
  }
}

bool register_library_functions(Handlers& handlers) {
  handlers.add(library().re_compile, [](Tracer& t, const Call& call) {
    if (!call.has_positional(2) || !is_text(call.arguments[0]) ||
        !(PyLong_CheckExact(call.arguments[1]) || lift::is_plain(call.arguments[1])))
      return Ref();
    return t.library->compile_pattern(call.arguments[0], call.arguments[1]);
  });
  for (const auto& [function, twin] : library().twins) handlers.add(function, call_twin);
  handlers.add("sys", "audit", [](Tracer&, const Call&) {
    if (cpython::has_audit_hooks()) stop(report::Reason::native_call, "sys.audit under an audit hook");
    return Ref::share(Py_None);
  });
  handlers.add("builtins", "__import__", [](Tracer& t, const Call& call) {
    Ref module = find_imported(call);
    return t.lifter.lift(module, t.lifter.constant(module));
  });
  return true;
}

bool has_field_path(Borrowed format) {
  const Py_ssize_t length = PyUnicode_GET_LENGTH(format.get());
  bool in_name = false;
  for (Py_ssize_t i = 0; i < length; i++) {
    const Py_UCS4 c = PyUnicode_READ_CHAR(format.get(), i);
    if (c == '{') {
      in_name = true;  // after a doubled brace, literal text is scanned needlessly
    } else if (c == '}' || c == ':' || c == '!') {
      in_name = false;
    } else if (in_name && (c == '.' || c == '[')) {
      return true;
    }
  }
  return false;
}

}  // namespace alternator::trace
