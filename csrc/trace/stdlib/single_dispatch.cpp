// functools.singledispatch. Its functions cache what they have found for a class in a WeakKeyDictionary, which has no
// more information than the registry. So the registry is read and guarded; the cache is only compared, and the residual
// program fills it as the call would have.
#include "trace/calls/call_dispatch.h"
#include "trace/calls/reflective_builtins.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/items.h"
#include "trace/stdlib/output_effects.h"
#include "trace/torch/torch_function_modes.h"

#include "lift/lifting/cells.h"
#include "lift/lifting/write_log.h"
#include "py/import.h"
#include "py/lasting.h"
#include "trace/calls/handlers.h"

namespace alternator::trace {

namespace {

struct Library {
  PyObject* dispatch_code = nullptr;                                // null: this CPython has another one
  Py_ssize_t cache_token = -1, dispatch_cache = -1, registry = -1;  // which of its free variables
  PyObject *find_impl, *get_cache_token, *weak_dict, *set_item;
};

const Library& library() {
  static constinit Lasting<Library> lasting;
  return lasting.get([] {
    auto of = [](const char* module, const char* name) {
      return checked(PyObject_GetAttrString(import_module(module).get(), name)).release();
    };
    Library found;
    found.find_impl = of("functools", "_find_impl");
    found.get_cache_token = of("_abc", "get_cache_token");
    found.weak_dict = of("weakref", "WeakKeyDictionary");
    found.set_item = checked(PyObject_GetAttrString(found.weak_dict, "__setitem__")).release();
    Ref maker = Ref::steal(of("functools", "singledispatch"));
    auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(maker.get()));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_consts); i++) {
      PyObject* constant = PyTuple_GET_ITEM(code->co_consts, i);
      if (!PyCode_Check(constant)) continue;
      auto* inner = reinterpret_cast<PyCodeObject*>(constant);
      if (PyUnicode_CompareWithASCIIString(inner->co_name, "dispatch") != 0) continue;
      Ref names = checked(PyCode_GetFreevars(inner));
      for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(names.get()); j++) {
        PyObject* name = PyTuple_GET_ITEM(names.get(), j);
        if (PyUnicode_CompareWithASCIIString(name, "cache_token") == 0) found.cache_token = j;
        if (PyUnicode_CompareWithASCIIString(name, "dispatch_cache") == 0) found.dispatch_cache = j;
        if (PyUnicode_CompareWithASCIIString(name, "registry") == 0) found.registry = j;
      }
      const bool known = found.cache_token >= 0 && found.dispatch_cache >= 0 && found.registry >= 0 &&
                         PyTuple_GET_SIZE(names.get()) == 3;
      if (known) found.dispatch_code = Py_NewRef(constant);
    }
    return found;
  });
}

// What the real cache has for a class; null: nothing.
Ref cached_for(Borrowed cache, Borrowed cls) {
  Ref data = checked(PyObject_GetAttrString(cache.get(), "data"));
  PyObject *key, *value;
  if (!PyDict_CheckExact(data.get())) return {};
  for (Py_ssize_t position = 0; PyDict_Next(data.get(), &position, &key, &value) != 0;) {
    if (PyWeakref_CheckRef(key) && PyWeakref_GET_OBJECT(key) == cls.get()) return Ref::share(value);
  }
  return {};
}

}  // namespace

// The dispatch() of a singledispatch function. Null: the function itself is traced.
static Ref find_implementation(Tracer& t, Borrowed function, Borrowed cls) {
  const Library& lib = library();
  auto* f = function.as<PyFunctionObject>();
  if (!PyType_Check(cls.get()) || t.lifter.made_here(function) || t.lifter.made_here(cls) ||
      t.lifter.known(function) == nullptr)
    return {};
  t.lifter.cells->use_closure(function);
  auto variable = [&](Py_ssize_t index) { return t.lifter.cells->load(PyTuple_GET_ITEM(f->func_closure, index)); };
  Ref token = variable(lib.cache_token), cache = variable(lib.dispatch_cache), registry = variable(lib.registry);
  if (!token || !cache || !registry || cache.type() != reinterpret_cast<PyTypeObject*>(lib.weak_dict)) return {};
  // Otherwise the cache would be cleared first.
  if (token.get() != Py_None && !lift::plain_equal(token.get(), query(t, lib.get_cache_token).get())) return {};
  lift::Known *known_cache = t.lifter.known(cache), *known_registry = t.lifter.known(registry);
  if (known_cache == nullptr || known_cache->attributes != nullptr || known_registry == nullptr ||
      known_registry->shadow == nullptr)
    return {};
  // From here on the program may neither read nor clear it: it would not see the entries that will be added.
  known_cache->opaque = true;
  const lift::Shadow& shadow = *known_registry->shadow;
  if (PyDict_GET_SIZE(shadow.copy.get()) != PyDict_GET_SIZE(shadow.original.get()))
    stop(report::Reason::native_call, "a singledispatch function that the call has registered something with");
  const Ref preexisting_cache = known_cache->original;

  Ref found;
  if (contains(t, registry, cls)) {
    found = get_item(t, registry, cls);
  } else {
    PyObject* arguments[] = {nullptr, cls.get(), registry.get()};
    try {
      found = call(t, {t.lifter.lift(lib.find_impl, t.lifter.constant(lib.find_impl)), arguments + 1, 2, {}});
    } catch (const PyError&) {
      if (t.function_modes->is_unwinding()) throw;
      stop(report::Reason::raises, "through a frame that tracing skips");  // a traceback would lack it
    }
  }
  const lift::Known* known_found = t.lifter.known(found);
  if (known_found == nullptr) stop(report::Reason::native_call, "what a singledispatch function is registered with");
  if (Ref cached = cached_for(preexisting_cache, cls)) {
    if (cached != known_found->original)
      stop(report::Reason::native_call, "a singledispatch function whose cache says something else");
    return found;
  }
  for (const lift::EffectCall& effect : t.lifter.write_log->effects()) {
    if (effect.callable.get() == lib.set_item && PyTuple_GET_ITEM(effect.arguments.get(), 0) == cache.get() &&
        PyTuple_GET_ITEM(effect.arguments.get(), 1) == cls.get())
      return found;
  }
  t.output->add_effect(lib.set_item, checked(PyTuple_Pack(3, cache.get(), cls.get(), found.get())), {});
  return found;
}

bool register_single_dispatch(Handlers& handlers) {
  if (library().dispatch_code == nullptr) return true;
  handlers.add_code(library().dispatch_code, [](Tracer& t, const Call& call) {
    return call.has_positional(1) ? find_implementation(t, call.callable, call.arguments[0]) : Ref();
  });
  return true;
}

}  // namespace alternator::trace
