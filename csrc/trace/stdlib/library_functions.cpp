// Standard library functions that are handled specially: caches that must not be mutated, C code that has a twin in
// Python.
#include "trace/stdlib/library_functions.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/attributes.h"
#include "trace/stdlib/logging.h"
#include "trace/stdlib/single_dispatch.h"

#include "cpython/objects.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/immutable_values.h"
#include "lift/lifting/namespaces.h"
#include "lift/lifting/write_log.h"
#include "lift/sources/python_twins.h"
#include "py/import.h"
#include "py/lasting.h"
#include "trace/calls/natives.h"

#include <unordered_set>

namespace alternator::trace {

namespace {

struct Library {
  PyObject* re_compile;   // re._compile, behind all functions of re
  PyObject* re_cache;     // its cache
  PyObject* sre_compile;  // what makes a pattern
  PyObject* import;
  PyObject* audit;
  PyObject* loggers;  // all that logging.getLogger() has created
  PyTypeObject *attribute_getter, *method_caller, *lru_cache, *logger, *group_by;
  PyObject* reduce;
  std::unordered_set<PyObject*> callers;  // types whose instances call their first argument
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
    found->audit = of("sys", "audit");
    found->import = of("builtins", "__import__");
    found->sre_compile = of("re._compiler", "compile");
    auto type_of = [&](const char* module_name, const char* name) {
      return reinterpret_cast<PyTypeObject*>(of(module_name, name));
    };
    found->attribute_getter = type_of("operator", "attrgetter");
    found->method_caller = type_of("operator", "methodcaller");
    found->lru_cache = type_of("functools", "_lru_cache_wrapper");
    found->logger = type_of("logging", "Logger");
    found->group_by = type_of("itertools", "groupby");
    found->reduce = of("functools", "reduce");
    for (const char* name : {"takewhile", "dropwhile", "filterfalse", "starmap"})
      found->callers.insert(of("itertools", name));
    for (const char* name : {"map", "filter"}) found->callers.insert(of("builtins", name));
    Ref manager = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(found->logger), "manager"));
    found->loggers = checked(PyObject_GetAttrString(manager.get(), "loggerDict")).release();
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

void load_library() {
  (void)library();
  (void)lift::is_stand_in(Py_None);
}

// re caches compiled patterns: the same pattern is the same object as long as the cache has it. The cache is read, not
// mutated.
Ref LibraryFunctions::compile_pattern(PyObject* const* arguments) {
  const Library& lib = library();
  Borrowed pattern = arguments[0];
  Ref flags = checked(PyNumber_Index(arguments[1]));  // an int, or a member of re.RegexFlag
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

// operator.attrgetter and methodcaller read attributes natively: done here instead.
Ref LibraryFunctions::call_getter(Borrowed getter, Borrowed object) {
  const lift::GetterArguments bound = lift::getter_arguments(getter);
  Borrowed names = bound.positional;
  if (getter.type() == library().method_caller) {
    Ref method = get_attribute(t, object, PyTuple_GET_ITEM(names.get(), 0));
    std::vector<PyObject*> arguments{nullptr};
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(names.get()); i++)
      arguments.push_back(PyTuple_GET_ITEM(names.get(), i));
    const size_t positional = arguments.size() - 1;
    Ref keyword_names = bound.named ? checked(PyTuple_New(PyDict_GET_SIZE(bound.named.get()))) : Ref();
    PyObject *name = nullptr, *argument = nullptr;
    for (Py_ssize_t at = 0, i = 0; bound.named && PyDict_Next(bound.named.get(), &at, &name, &argument) != 0; i++) {
      PyTuple_SET_ITEM(keyword_names.get(), i, Py_NewRef(name));
      arguments.push_back(argument);
    }
    return trace::call(t, method, arguments.data() + 1, positional, keyword_names);
  }
  auto follow = [&](Borrowed path) {
    Ref value = Ref::share(object);
    Ref steps = checked(PyUnicode_Split(path.get(), checked(PyUnicode_FromString(".")).get(), -1));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(steps.get()); i++) {
      PyObject* name = Py_NewRef(PyList_GET_ITEM(steps.get(), i));
      PyUnicode_InternInPlace(&name);
      value = get_attribute(t, value, Ref::steal(name));
    }
    return value;
  };
  if (PyTuple_GET_SIZE(names.get()) == 1) return follow(PyTuple_GET_ITEM(names.get(), 0));
  Ref values = checked(PyTuple_New(PyTuple_GET_SIZE(names.get())));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.get()); i++) {
    Ref value = follow(PyTuple_GET_ITEM(names.get(), i));
    t.lifter.escape(value);
    PyTuple_SET_ITEM(values.get(), i, value.release());
  }
  return values;
}

// Modules whose lru_cache functions are pure.
static bool is_of_pure_module(Borrowed function) {
  Ref module = Ref::steal(PyObject_GetAttrString(function.get(), "__module__"));
  PyErr_Clear();
  if (!module || !PyUnicode_Check(module.get())) return false;
  for (const char* name : {"typing", "re", "fnmatch", "inspect"}) {
    if (PyUnicode_CompareWithASCIIString(module.get(), name) == 0) return true;
  }
  return false;
}

// Values that are compared by value or identity, and whose hash runs no user code.
static bool is_value(Borrowed value) {
  PyObject* v = value.get();
  if (PyTuple_CheckExact(v)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(v); i++) {
      if (!is_value(PyTuple_GET_ITEM(v, i))) return false;
    }
    return true;
  }
  return lift::is_plain(v) || PyFunction_Check(v) ||
         (PyType_Check(v) && Py_TYPE(v)->tp_hash == PyBaseObject_Type.tp_hash);
}

// Values that may be looked up in the cache of a pre-existing function: the trace has made none of them.
bool LibraryFunctions::is_preexisting_value(Borrowed value) {
  PyObject* v = value.get();
  if (PyTuple_CheckExact(v)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(v); i++) {
      if (!is_preexisting_value(PyTuple_GET_ITEM(v, i))) return false;
    }
    return true;
  }
  if (lift::is_plain(v)) return true;
  if (PyType_Check(v)) return !t.lifter.made_here(value) && Py_TYPE(v)->tp_hash == PyBaseObject_Type.tp_hash;
  lift::Known* known = t.lifter.known(value);
  if (known == nullptr || known->original.get() != v) return false;
  Ref module = Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(value.type()), "__module__"));
  PyErr_Clear();
  const bool pattern = cpython::is_native(value.type(), "re.Pattern");
  if (!pattern &&
      !(module && PyUnicode_Check(module.get()) && PyUnicode_CompareWithASCIIString(module.get(), "typing") == 0)) {
    return false;
  }
  if (known->source->access != lift::Access::kConstant)
    t.tree->guard(known->source, {lift::GuardKind::kIs, Ref::share(v)});
  return true;
}

// A logger that logging itself keeps alive, hashed by its address: an entry that looks it up in a cache extends no
// lifetime.
static bool is_lasting_logger(const lift::Known* known, Borrowed value) {
  if (known == nullptr || known->source == nullptr || known->original.get() != value.get() ||
      PyType_IsSubtype(value.type(), library().logger) == 0 || value.type()->tp_hash != PyBaseObject_Type.tp_hash ||
      value.type()->tp_richcompare != PyBaseObject_Type.tp_richcompare)
    return false;
  PyObject** own = _PyObject_GetDictPtr(value.get());
  PyObject* name = own != nullptr && *own != nullptr ? PyDict_GetItemString(*own, "name") : nullptr;
  return name != nullptr && PyUnicode_CheckExact(name) && PyDict_GetItem(library().loggers, name) == value.get();
}

namespace {

// An lru_cache function that is called by another one, or by itself: repeating the outer call repeats the inner one
// too, where eager does.
struct InCachedCall {
  static thread_local int depth;
  InCachedCall() { depth++; }
  ~InCachedCall() { depth--; }
  InCachedCall(const InCachedCall&) = delete;
  InCachedCall& operator=(const InCachedCall&) = delete;
};
thread_local int InCachedCall::depth = 0;

}  // namespace

// What its cache already has for these arguments: a pre-existing object with a source like any other. The call itself,
// which counts the hit and updates the LRU order, is repeated on every run; it runs no user code.
Ref LibraryFunctions::find_cached(Borrowed wrapper, PyObject* const* arguments, size_t count) {
  PyObject* cache = cpython::lru_cache_dict(wrapper.get());
  if (cache == nullptr) return {};
  Ref given = checked(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; i < count; i++) {
    const lift::Known* known = t.lifter.known(arguments[i]);
    const bool logger = is_lasting_logger(known, arguments[i]);
    if (!logger && (!lift::is_plain(arguments[i]) || lift::is_nan(arguments[i]))) return {};  // one NaN is not another
    if (logger && known->source->access != lift::Access::kConstant)
      t.tree->guard(known->source, {lift::GuardKind::kIs, Ref::share(arguments[i])});
    PyTuple_SET_ITEM(given.get(), static_cast<Py_ssize_t>(i), Py_NewRef(arguments[i]));
  }
  const bool alone = count == 1 && (PyUnicode_CheckExact(arguments[0]) || PyLong_CheckExact(arguments[0]));
  Borrowed key = alone ? Borrowed(arguments[0]) : Borrowed(given);
  lift::Source* source = t.tree->child(t.lifter.known(wrapper)->source, lift::Access::kCached, key);
  Ref owner;
  PyObject* kept = lift::follow(*source, wrapper.get(), &owner);
  if (kept == nullptr) return {};
  Ref result = t.lifter.lift(kept, source);
  if (InCachedCall::depth == 0) t.lifter.write_log->add_effect({Ref::share(wrapper), std::move(given), {}});
  return result;
}

// What functools.update_wrapper or the program has set on an lru_cache function. Null: it is another object, or the
// attribute is about its cache.
Ref LibraryFunctions::cache_attribute(Borrowed owner, Borrowed name) {
  if (owner.type() != library().lru_cache) return {};
  PyObject* of_type = _PyType_Lookup(owner.type(), name.get());
  if (of_type != nullptr && Py_TYPE(of_type)->tp_descr_set != nullptr) return {};
  lift::Shadow* attributes = t.lifter.namespaces->attributes(owner);
  return attributes != nullptr ? t.lifter.containers->dict_item(*attributes, name) : Ref();
}

static lift::EffectCall repeat_call(Borrowed callable, PyObject* const* arguments, size_t positional,
                                    Borrowed keyword_names) {
  Ref given = checked(PyTuple_New(static_cast<Py_ssize_t>(positional)));
  for (size_t i = 0; i < positional; i++)
    PyTuple_SET_ITEM(given.get(), static_cast<Py_ssize_t>(i), Py_NewRef(arguments[i]));
  if (!keyword_names) return {Ref::share(callable), std::move(given), {}};
  Ref named = checked(PyDict_New());
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keyword_names.get()); i++)
    check_status(PyDict_SetItem(named.get(), PyTuple_GET_ITEM(keyword_names.get(), i),
                                arguments[positional + static_cast<size_t>(i)]));
  return {Ref::share(callable), std::move(given), std::move(named)};
}

// Equal for calls with the same result.
static Ref key_of_call(Borrowed wrapper, PyObject* const* arguments, size_t total, Borrowed keyword_names) {
  Ref key = checked(PyTuple_New(static_cast<Py_ssize_t>(2 * total) + 2));
  PyTuple_SET_ITEM(key.get(), 0, Py_NewRef(wrapper.get()));
  PyTuple_SET_ITEM(key.get(), 1, Py_NewRef(keyword_names ? keyword_names.get() : Py_None));
  for (size_t i = 0; i < total; i++) {
    PyTuple_SET_ITEM(key.get(), static_cast<Py_ssize_t>(2 * i) + 2, Py_NewRef(arguments[i]));
    PyTuple_SET_ITEM(key.get(), static_cast<Py_ssize_t>(2 * i) + 3, Py_NewRef(Py_TYPE(arguments[i])));
  }
  return key;
}

// A pre-existing lru_cache function.
Ref LibraryFunctions::call_cached(Borrowed wrapper, PyObject* const* arguments, size_t positional,
                                  Borrowed keyword_names) {
  const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
  Ref wrapped = checked(PyObject_GetAttrString(wrapper.get(), "__wrapped__"));
  auto inlined = [&] {
    return trace::call(t, t.lifter.lift(wrapped, t.lifter.constant(wrapped)), arguments, positional, keyword_names);
  };
  if (!is_of_pure_module(wrapped)) {
    if (!keyword_names) {
      if (Ref kept = find_cached(wrapper, arguments, total)) return kept;
    }
    // If the function's result depends on its arguments alone, and it has no side effects, the call itself, which fills
    // the cache or finds what has been put there since, may be repeated on every run.
    for (size_t i = 0; i < total; i++) {
      if (!is_value(arguments[i]))
        stop(report::Reason::native_call, "an lru_cache function that is called with an object");
    }
    if (!cached_) cached_ = checked(PyDict_New());
    Ref key = key_of_call(wrapper, arguments, total, keyword_names);
    Ref result = Ref::share(PyDict_GetItemWithError(cached_.get(), key.get()));
    if (PyErr_Occurred()) throw PyError();
    if (!result) {
      const lift::WriteMark mark = t.lifter.write_log->mark();
      {
        const lift::OnlyLasting only_lasting(t.lifter);
        const graph::Recorder::Silent silent(t.recorder);
        const InCachedCall inside;
        result = inlined();
      }
      if (!is_value(result) && !PyModule_Check(result.get()))
        stop(report::Reason::native_call, "an object from a function with an lru_cache");
      if (t.lifter.write_log->has_writes_since(mark))
        stop(report::Reason::native_call, "a function with an lru_cache that writes");
      check_status(PyDict_SetItem(cached_.get(), key.get(), result.get()));
    }
    if (InCachedCall::depth == 0)
      t.lifter.write_log->add_effect(repeat_call(wrapper, arguments, positional, keyword_names));
    return result;
  }
  // One object for equal arguments. The cache itself is used, unless it would see what the trace has made.
  bool preexisting = true;
  for (size_t i = 0; i < total; i++) preexisting = preexisting && is_preexisting_value(arguments[i]);
  if (preexisting) {
    Ref found;
    {
      const Paused paused(t);
      found = checked(PyObject_Vectorcall(wrapper.get(), arguments, positional, keyword_names.get()));
    }
    return t.lifter.lift(found, t.lifter.constant(found));
  }
  Ref key = key_of_call(wrapper, arguments, total, keyword_names);
  if (!cached_) cached_ = checked(PyDict_New());
  if (PyObject* known = PyDict_GetItemWithError(cached_.get(), key.get())) return Ref::share(known);
  if (PyErr_Occurred()) throw PyError();  // not hashable
  Ref result = inlined();
  check_status(PyDict_SetItem(cached_.get(), key.get(), result.get()));
  return result;
}

// __import__ of a loaded module: the module itself if names are imported from it, else its top-level package.
static Ref find_imported(PyObject* const* arguments, size_t count, Borrowed keyword_names) {
  Borrowed name = count > 0 ? Borrowed(arguments[0]) : Borrowed();
  Borrowed wanted = count > 3 ? Borrowed(arguments[3]) : Borrowed();
  Borrowed level = count > 4 ? Borrowed(arguments[4]) : Borrowed();
  for (Py_ssize_t i = 0; keyword_names && i < PyTuple_GET_SIZE(keyword_names.get()); i++) {
    Borrowed keyword = PyTuple_GET_ITEM(keyword_names.get(), i);
    if (PyUnicode_CompareWithASCIIString(keyword.get(), "fromlist") == 0)
      wanted = arguments[count + static_cast<size_t>(i)];
    if (PyUnicode_CompareWithASCIIString(keyword.get(), "level") == 0)
      level = arguments[count + static_cast<size_t>(i)];
  }
  if (!name || !PyUnicode_CheckExact(name.get()) ||
      (level && !(PyLong_CheckExact(level.get()) && PyLong_AsLong(level.get()) == 0)))
    stop(report::Reason::import_new, "a relative import");
  const bool whole = wanted && (PyTuple_CheckExact(wanted.get()) || PyList_CheckExact(wanted.get())) &&
                     PyObject_Length(wanted.get()) > 0;
  if (wanted && !whole && wanted.get() != Py_None && PyObject_Length(wanted.get()) != 0)
    stop(report::Reason::import_new, "a list of names of another type");
  Ref loaded = Ref::steal(PyImport_GetModule(name.get()));
  if (!loaded || !PyModule_Check(loaded.get())) {
    PyErr_Clear();
    stop(report::Reason::import_new, PyUnicode_AsUTF8(name.get()));
  }
  for (Py_ssize_t i = 0; whole && i < PySequence_Fast_GET_SIZE(wanted.get()); i++) {
    // A name that it lacks could be a submodule.
    Borrowed one = PySequence_Fast_GET_ITEM(wanted.get(), i);
    const bool all = PyUnicode_Check(one.get()) && PyUnicode_CompareWithASCIIString(one.get(), "*") == 0;
    if (all && PyDict_GetItemString(PyModule_GetDict(loaded.get()), "__path__") == nullptr) continue;
    if (!alternator::contains(PyModule_GetDict(loaded.get()), PySequence_Fast_GET_ITEM(wanted.get(), i)).value())
      stop(report::Reason::import_new, PyUnicode_AsUTF8(name.get()));
  }
  if (whole) return loaded;
  const Py_ssize_t dot = PyUnicode_FindChar(name.get(), '.', 0, PyUnicode_GET_LENGTH(name.get()), 1);
  if (dot < 0) return loaded;
  Ref outermost = checked(PyUnicode_Substring(name.get(), 0, dot));
  return checked(PyImport_GetModule(outermost.get()));
}

// Callables that call their `key=`.
static bool takes_key(Borrowed callable) {
  PyObject* c = callable.get();
  if (c == reinterpret_cast<PyObject*>(library().group_by)) return true;
  if (Py_IS_TYPE(c, &PyMethodDescr_Type)) {
    auto* descriptor = callable.as<PyMethodDescrObject>();
    return descriptor->d_common.d_type == &PyList_Type && strcmp(descriptor->d_method->ml_name, "sort") == 0;
  }
  if (!PyCFunction_Check(c)) return false;
  const char* name = callable.as<PyCFunctionObject>()->m_ml->ml_name;
  PyObject* self = PyCFunction_GET_SELF(c);
  if (self != nullptr && PyList_CheckExact(self)) return strcmp(name, "sort") == 0;
  return self != nullptr && PyModule_Check(self) &&
         (strcmp(name, "sorted") == 0 || strcmp(name, "min") == 0 || strcmp(name, "max") == 0);
}

// Which argument the callable calls, and that reads objects natively: map(operator.attrgetter("name"), rows). -1: none.
int LibraryFunctions::place_of_reader(Borrowed callable, PyObject* const* arguments, size_t positional,
                                      Borrowed keyword_names) {
  const Library& lib = library();
  for (Py_ssize_t i = 0; keyword_names && i < PyTuple_GET_SIZE(keyword_names.get()); i++) {
    const size_t place = positional + static_cast<size_t>(i);
    if (reads_objects(arguments[place]) && takes_key(callable) &&
        PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(keyword_names.get(), i), "key") == 0)
      return static_cast<int>(place);
  }
  if (positional > 1 && callable.get() == reinterpret_cast<PyObject*>(lib.group_by) && reads_objects(arguments[1]))
    return 1;
  const bool calls_first = callable.get() == lib.reduce || lib.callers.count(callable.get()) != 0;
  return positional > 1 && calls_first && reads_objects(arguments[0]) ? 0 : -1;
}

// Native code gets a Python function instead, which is traced. If that raises, the trace stops (run_for_native).
Ref LibraryFunctions::call_with_stand_in(Borrowed callable, PyObject* const* arguments, size_t positional,
                                         Borrowed keyword_names, size_t place) {
  const size_t named = keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0;
  std::vector<PyObject*> given{nullptr};
  given.insert(given.end(), arguments, arguments + positional + named);
  Ref function = lift::stand_in_for(arguments[place]);
  given[1 + place] = function.get();
  return trace::call(t, callable, given.data() + 1, positional, keyword_names);
}

Ref LibraryFunctions::call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  const Library& lib = library();
  if (callable.get() == lib.re_compile && positional == 2 && !keyword_names && is_text(arguments[0]) &&
      (PyLong_CheckExact(arguments[1]) || lift::is_plain(arguments[1]))) {
    return compile_pattern(arguments);
  }
  if (PyFunction_Check(callable.get()) && !keyword_names) {
    if (Ref function = positional == 1 ? call_dispatch(t, callable, arguments[0]) : Ref()) return function;
    if (Ref logger = find_logger(t, callable, arguments, positional)) return logger;
  }
  if (auto twin = lib.twins.find(callable.get()); twin != lib.twins.end()) {
    Ref function = t.lifter.lift(twin->second, t.lifter.constant(twin->second));
    try {
      return trace::call(t, function, arguments, positional, keyword_names);
    } catch (const PyError&) {
      if (t.stopped) throw;
      PyErr_Clear();  // the twin's message and traceback differ
      stop(report::Reason::native_call, native_name(callable) + ", which fails");
    }
  }
  if (callable.get() == lib.audit) {
    if (cpython::has_audit_hooks()) stop(report::Reason::native_call, "sys.audit under an audit hook");
    return Ref::share(Py_None);
  }
  if (callable.get() == lib.import) {
    Ref module = find_imported(arguments, positional, keyword_names);
    return t.lifter.lift(module, t.lifter.constant(module));
  }
  if ((callable.type() == lib.attribute_getter || callable.type() == lib.method_caller) && positional == 1 &&
      !keyword_names) {
    return call_getter(callable, arguments[0]);
  }
  if (const int place = place_of_reader(callable, arguments, positional, keyword_names); place >= 0)
    return call_with_stand_in(callable, arguments, positional, keyword_names, static_cast<size_t>(place));
  if (callable.type() == lib.lru_cache && t.lifter.known(callable) != nullptr)
    return call_cached(callable, arguments, positional, keyword_names);
  return {};
}

// Native code may not be given a callable that natively reads pre-existing objects.
bool LibraryFunctions::reads_attributes(Borrowed value) {
  const Library& lib = library();
  return value.type() == lib.attribute_getter || value.type() == lib.method_caller;
}

// ... and builtins that the tracer handles only where they are called by name.
bool LibraryFunctions::reads_objects(Borrowed value) {
  const Natives& natives = Natives::table();
  for (PyObject* function : {natives.getattr, natives.hasattr, natives.setattr, natives.isinstance}) {
    if (value.get() == function) return true;
  }
  return reads_attributes(value);
}

// Whether a format string names attributes or items of its arguments: "{0.x}", but not "{:.2f}".
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
