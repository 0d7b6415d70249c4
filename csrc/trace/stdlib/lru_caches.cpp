#include "trace/stdlib/lru_caches.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"
#include "trace/symbolic/backed_numbers.h"

#include "cpython/objects.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/namespaces.h"
#include "lift/lifting/write_log.h"
#include "py/import.h"
#include "py/lasting.h"
#include "trace/calls/handlers.h"
#include "trace/calls/markers.h"

#include <algorithm>

namespace alternator::trace {

namespace {

struct CacheTypes {
  PyTypeObject *wrapper, *logger, *pattern;
  PyObject* loggers;  // all that logging.getLogger() has created
};

const CacheTypes& types() {
  static constinit Lasting<CacheTypes> lasting;
  return lasting.get([] {
    auto of = [](const char* module_name, const char* name) {
      return reinterpret_cast<PyTypeObject*>(
          checked(PyObject_GetAttrString(import_module(module_name).get(), name)).release());
    };
    CacheTypes found{of("functools", "_lru_cache_wrapper"), of("logging", "Logger"), of("re", "Pattern"), nullptr};
    Ref manager = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(found.logger), "manager"));
    found.loggers = checked(PyObject_GetAttrString(manager.get(), "loggerDict")).release();
    return found;
  });
}

}  // namespace

static bool is_of_module(Borrowed object, const char* name) {
  Ref module = Ref::steal(PyObject_GetAttrString(object.get(), "__module__"));
  PyErr_Clear();
  return module && PyUnicode_Check(module.get()) && PyUnicode_CompareWithASCIIString(module.get(), name) == 0;
}

// Modules whose lru_cache functions are pure.
static bool is_of_pure_module(Borrowed function) {
  for (const char* name : {"typing", "re", "fnmatch", "inspect"}) {
    if (is_of_module(function, name)) return true;
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
bool LruCaches::is_preexisting_value(Borrowed value) {
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
  if (value.type() != types().pattern && !is_of_module(reinterpret_cast<PyObject*>(value.type()), "typing"))
    return false;
  if (known->source->access != lift::Access::kConstant)
    t.tree->guard(known->source, {lift::GuardKind::kIs, Ref::share(v)});
  return true;
}

// A logger that logging itself keeps alive, hashed by its address: an entry that looks it up in a cache extends no
// lifetime.
static bool is_lasting_logger(const lift::Known* known, Borrowed value) {
  if (known == nullptr || known->source == nullptr || known->original.get() != value.get() ||
      PyType_IsSubtype(value.type(), types().logger) == 0 || value.type()->tp_hash != PyBaseObject_Type.tp_hash ||
      value.type()->tp_richcompare != PyBaseObject_Type.tp_richcompare)
    return false;
  PyObject** own = _PyObject_GetDictPtr(value.get());
  PyObject* name = own != nullptr && *own != nullptr ? PyDict_GetItemString(*own, "name") : nullptr;
  return name != nullptr && PyUnicode_CheckExact(name) && PyDict_GetItem(types().loggers, name) == value.get();
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

static lift::EffectCall repeat_call(const Call& call) {
  Ref given = checked(PyTuple_New(static_cast<Py_ssize_t>(call.positional)));
  for (size_t i = 0; i < call.positional; i++)
    PyTuple_SET_ITEM(given.get(), static_cast<Py_ssize_t>(i), Py_NewRef(call.arguments[i]));
  if (!call.keyword_names) return {Ref::share(call.callable), std::move(given), {}};
  Ref named = checked(PyDict_New());
  for (size_t i = 0; i < call.keywords(); i++)
    check_status(PyDict_SetItem(named.get(), PyTuple_GET_ITEM(call.keyword_names.get(), static_cast<Py_ssize_t>(i)),
                                call.arguments[call.positional + i]));
  return {Ref::share(call.callable), std::move(given), std::move(named)};
}

// Equal for calls with the same result.
static Ref key_of_call(const Call& call) {
  const auto total = static_cast<Py_ssize_t>(call.count());
  Ref key = checked(PyTuple_New(2 * total + 2));
  PyTuple_SET_ITEM(key.get(), 0, Py_NewRef(call.callable.get()));
  PyTuple_SET_ITEM(key.get(), 1, Py_NewRef(call.keyword_names ? call.keyword_names.get() : Py_None));
  for (Py_ssize_t i = 0; i < total; i++) {
    PyTuple_SET_ITEM(key.get(), 2 * i + 2, Py_NewRef(call.arguments[i]));
    PyTuple_SET_ITEM(key.get(), 2 * i + 3, Py_NewRef(Py_TYPE(call.arguments[i])));
  }
  return key;
}

// Arguments that may be looked up in the real cache: plain values, and loggers that logging keeps alive.
bool LruCaches::may_be_key(Borrowed argument) {
  const lift::Known* known = t.lifter.known(argument);
  if (is_lasting_logger(known, argument)) {
    if (known->source->access != lift::Access::kConstant)
      t.tree->guard(known->source, {lift::GuardKind::kIs, Ref::share(argument)});
    return true;
  }
  return lift::is_plain(argument.get()) && !lift::is_nan(argument.get());  // one NaN is not another
}

// What its cache already has for these arguments: a pre-existing object with a source like any other. The call itself,
// which counts the hit and updates the LRU order, is repeated on every run; it runs no user code.
Ref LruCaches::find_cached(const Call& call) {
  PyObject* cache = cpython::lru_cache_dict(call.callable.get());
  if (cache == nullptr) return {};
  PyObject* const* arguments = call.arguments;
  if (!std::all_of(arguments, arguments + call.positional, [&](PyObject* argument) { return may_be_key(argument); }))
    return {};
  const bool alone = call.positional == 1 && (PyUnicode_CheckExact(arguments[0]) || PyLong_CheckExact(arguments[0]));
  lift::EffectCall again = repeat_call(call);
  Borrowed key = alone ? Borrowed(arguments[0]) : Borrowed(again.arguments);
  lift::Source* source = t.tree->child(t.lifter.known(call.callable)->source, lift::Access::kCached, key);
  Ref owner;
  PyObject* kept = lift::follow(*source, call.callable.get(), &owner);
  if (kept == nullptr) return {};
  Ref result = t.lifter.lift(kept, source);
  if (InCachedCall::depth == 0) t.lifter.write_log->add_effect(std::move(again));
  return result;
}

Ref LruCaches::attribute(Borrowed owner, Borrowed name) {
  if (owner.type() != types().wrapper) return {};
  PyObject* of_type = _PyType_Lookup(owner.type(), name.get());
  if (of_type != nullptr && Py_TYPE(of_type)->tp_descr_set != nullptr) return {};
  lift::Shadow* attributes = t.lifter.namespaces->attributes(owner);
  return attributes != nullptr ? t.lifter.containers->dict_item(*attributes, name) : Ref();
}

Ref LruCaches::call_inlined(const Call& call, Borrowed wrapped) {
  return trace::call(t, call.of(t.lifter.lift(wrapped, t.lifter.constant(wrapped))));
}

// If the function's result depends on its arguments alone, and it has no side effects, the call itself, which fills the
// cache or finds what has been put there since, may be repeated on every run.
Ref LruCaches::call_repeated(const Call& call, Borrowed wrapped) {
  for (size_t i = 0; i < call.count(); i++) {
    if (!is_value(call.arguments[i]))
      stop(report::Reason::native_call, "an lru_cache function that is called with an object");
  }
  if (!cached_) cached_ = checked(PyDict_New());
  Ref key = key_of_call(call);
  Ref result = Ref::share(PyDict_GetItemWithError(cached_.get(), key.get()));
  if (PyErr_Occurred()) throw PyError();
  if (!result) {
    const lift::WriteMark mark = t.lifter.write_log->mark();
    {
      const lift::OnlyLasting only_lasting(t.lifter);
      const graph::Recorder::Silent silent(t.recorder);
      const InCachedCall inside;
      result = call_inlined(call, wrapped);
    }
    if (!is_value(result) && !PyModule_Check(result.get()))
      stop(report::Reason::native_call, "an object from a function with an lru_cache");
    if (t.lifter.write_log->has_writes_since(mark))
      stop(report::Reason::native_call, "a function with an lru_cache that writes");
    check_status(PyDict_SetItem(cached_.get(), key.get(), result.get()));
  }
  if (InCachedCall::depth == 0) t.lifter.write_log->add_effect(repeat_call(call));
  return result;
}

// One object for equal arguments. The cache itself is used, unless it would see what the trace has made.
Ref LruCaches::call_pure(const Call& call, Borrowed wrapped) {
  if (std::all_of(call.arguments, call.arguments + call.count(),
                  [&](PyObject* argument) { return is_preexisting_value(argument); })) {
    Ref found;
    {
      const Paused paused(t);
      found =
          checked(PyObject_Vectorcall(call.callable.get(), call.arguments, call.positional, call.keyword_names.get()));
    }
    return t.lifter.lift(found, t.lifter.constant(found));
  }
  Ref key = key_of_call(call);
  if (!cached_) cached_ = checked(PyDict_New());
  if (PyObject* known = PyDict_GetItemWithError(cached_.get(), key.get())) return Ref::share(known);
  if (PyErr_Occurred()) throw PyError();  // not hashable
  Ref result = call_inlined(call, wrapped);
  check_status(PyDict_SetItem(cached_.get(), key.get(), result.get()));
  return result;
}

Ref LruCaches::call(const Call& call) {
  for (size_t i = 0; i < call.count(); i++) t.backed->make_plain(call.arguments[i]);  // they are keys
  Ref wrapped = checked(PyObject_GetAttrString(call.callable.get(), "__wrapped__"));
  if (is_of_pure_module(wrapped)) return call_pure(call, wrapped);
  if (Ref kept = call.keyword_names ? Ref() : find_cached(call)) return kept;
  return call_repeated(call, wrapped);
}

bool register_lru_caches(Handlers& handlers) {
  handlers.add_instances(types().wrapper, [](Tracer& t, const Call& call) {
    const bool applies = t.lifter.known(call.callable) != nullptr && !t.marks->is_allowed_in_graph(call.callable);
    return applies ? t.lru_caches->call(call) : Ref();
  });
  return true;
}

}  // namespace alternator::trace
