#include "dispatch/compiled.h"

#include "dispatch/compiled_call.h"
#include "dispatch/dynamism_policy.h"
#include "dispatch/shape_specs.h"
#include "dispatch/stance.h"
#include "graph/export/fx_graph.h"
#include "graph/sizes/torch_sizes.h"
#include "interpreter/capture.h"
#include "py/forking.h"
#include "py/import.h"
#include "py/names.h"
#include "trace/calls/markers.h"
#include "trace/core/tracer.h"

#include <structmember.h>

#include <map>
#include <set>

namespace alternator::dispatch {

namespace {

struct CompiledObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;  // the compilation's, for __wrapped__
  PyObject* self;      // for __self__; null: unbound
  PyObject* attributes;
  PyObject* weak_references;
  std::shared_ptr<Compilation>* compilation;
  bool run_only;  // nothing is traced; entries of other compile()s of the same function are used too
  bool of_class;  // the function is type(self).__call__, until the class gets another one
};

std::set<CompiledObject*>& all() {
  static auto* objects = new std::set<CompiledObject*>;
  return *objects;
}

// Among all compile()s of the same function, the one that has an entry for a call; null: none.
std::shared_ptr<Compilation> find_known(const Compilation& like, PyObject* const* arguments, size_t positional,
                                        PyObject* keyword_names) {
  std::vector<std::shared_ptr<Compilation>> candidates;
  for (const CompiledObject* compiled : all()) {
    const std::shared_ptr<Compilation>& other = *compiled->compilation;
    if (!compiled->run_only && other->function.get() == like.function.get() && other->self.get() == like.self.get())
      candidates.push_back(other);
  }
  for (std::shared_ptr<Compilation>& candidate : candidates) {
    if (candidates.size() == 1 || is_known(*candidate, arguments, positional, keyword_names)) return candidate;
  }
  return nullptr;
}

bool is_other(PyObject* self) {
  PyObject* attributes = reinterpret_cast<CompiledObject*>(self)->attributes;
  return attributes != nullptr && PyDict_GetItemString(attributes, "_alternator_other") != nullptr;
}

// The same function, compiled with the backend that the stance demands.
Ref with_other_backend(PyObject* self) {
  Ref module = import_module("alternator.compiler");
  return checked(PyObject_CallMethod(module.get(), "_with_other_backend", "O", self));
}

PyObject* compiled_vectorcall(PyObject* self, PyObject* const* arguments, size_t flagged, PyObject* keyword_names) {
  // The call may outlive the object.
  const std::shared_ptr<Compilation> compilation = *reinterpret_cast<CompiledObject*>(self)->compilation;
  if (reinterpret_cast<CompiledObject*>(self)->of_class &&
      _PyType_Lookup(compilation->self.type(), names::__call__) != compilation->function.get())
    return PyObject_Vectorcall(Ref(compilation->self).get(), arguments, flagged, keyword_names);
  PyObject* const* const given = arguments;
  std::vector<PyObject*> with_self;
  size_t positional = PyVectorcall_NARGS(flagged);
  if (compilation->self) {
    const size_t total =
        positional + (keyword_names != nullptr ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names)) : 0);
    with_self.resize(total + 1);
    with_self[0] = compilation->self.get();
    std::copy(arguments, arguments + total, with_self.begin() + 1);
    arguments = with_self.data();
    positional++;
  }
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(compilation->function.get()));
  const Stance now = stance();
  if (now == Stance::kOtherBackend && control.evaluator == nullptr && !is_other(self)) {
    return guarded([&] {
      Ref other = with_other_backend(self);
      return checked(PyObject_Vectorcall(other.get(), given, flagged, keyword_names));
    });
  }
  const bool is_first =
      control.evaluator == nullptr && now == Stance::kEagerFirst && !std::exchange(compilation->was_called, true);
  const bool plain = control.evaluator != nullptr || now == Stance::kEager || is_first ||
                     (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0;
  if (plain) {
    if (is_first) note_first_call(*compilation, arguments, positional, keyword_names);
    return PyObject_Vectorcall(compilation->function.get(), arguments, positional, keyword_names);
  }
  if (reinterpret_cast<CompiledObject*>(self)->run_only) {
    return guarded([&] {
      if (auto known = find_known(*compilation, arguments, positional, keyword_names))
        return Ref::steal(call(*known, arguments, positional, keyword_names, false));
      return Ref::steal(PyObject_Vectorcall(compilation->function.get(), arguments, positional, keyword_names));
    });
  }
  return call(*compilation, arguments, positional, keyword_names, now != Stance::kKnownOnly);
}

void compiled_dealloc(PyObject* self) {
  auto* compiled = reinterpret_cast<CompiledObject*>(self);
  PyObject_GC_UnTrack(self);
  all().erase(compiled);
  if (compiled->weak_references != nullptr) PyObject_ClearWeakRefs(self);
  {
    const SavedError outer;
    // A compilation and its intercepted callees refer to each other in a cycle.
    if (compiled->compilation->use_count() == 1) (*compiled->compilation)->reset();
    delete std::exchange(compiled->compilation, nullptr);
  }
  Py_CLEAR(compiled->attributes);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

int compiled_traverse(PyObject* self, visitproc visit, void* arg) {
  auto* compiled = reinterpret_cast<CompiledObject*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(compiled->attributes);
  if (compiled->compilation == nullptr || compiled->compilation->use_count() > 1) return 0;
  const Compilation& compilation = **compiled->compilation;
  Py_VISIT(compilation.function.get());
  Py_VISIT(compilation.self.get());
  Py_VISIT(compilation.listener.get());
  Py_VISIT(compilation.family->begin_step.get());
  return 0;
}

int compiled_clear(PyObject* self) {
  auto* compiled = reinterpret_cast<CompiledObject*>(self);
  (*compiled->compilation)->reset();
  compiled->self = nullptr;
  (*compiled->compilation)->self.reset();
  Py_CLEAR(compiled->attributes);
  return 0;
}

PyObject* compiled_get(PyObject* self, PyObject* instance, PyObject*) {
  if (instance == nullptr || instance == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}

// Entries of the function's start come first.
template <class Visit>
void each_entry(PyObject* self, Visit&& visit) {
  const std::shared_ptr<Compilation> compilation = *reinterpret_cast<CompiledObject*>(self)->compilation;
  auto visit_places = [&](const Compilation& one) {
    for (auto& entry : one.start->entries) visit(*entry);
    for (auto& point : one.resumed) {
      for (auto& entry : point->entries) visit(*entry);
    }
  };
  visit_places(*compilation);
  for (auto& [code, callee] : compilation->family->callees) {
    if (callee->compilation != nullptr) visit_places(*callee->compilation);
  }
}

PyObject* compiled_guards(PyObject* self, void*) {
  return guarded([&]() -> Ref {
    Ref list = checked(PyList_New(0));
    each_entry(self, [&](const Entry& entry) { check_status(PyList_Append(list.get(), entry.guard_texts().get())); });
    return list;
  });
}

PyObject* compiled_fullgraph(PyObject* self, void*) {
  return PyBool_FromLong((*reinterpret_cast<CompiledObject*>(self)->compilation)->fullgraph ? 1 : 0);
}

PyObject* compiled_dynamic(PyObject* self, void*) {
  const std::optional<bool> dynamic = (*reinterpret_cast<CompiledObject*>(self)->compilation)->dynamic;
  return dynamic ? PyBool_FromLong(*dynamic ? 1 : 0) : Py_NewRef(Py_None);
}

PyObject* compiled_residuals(PyObject* self, void*) {
  return guarded([&]() -> Ref {
    Ref list = checked(PyList_New(0));
    each_entry(self, [&](const Entry& entry) {
      check_status(PyList_Append(list.get(), checked(PyUnicode_FromString(entry.residual.text().c_str())).get()));
    });
    return list;
  });
}

// All other attributes are the function's: name, source, __dict__. Two of these its class defines too.
PyObject* compiled_getattr(PyObject* self, PyObject* name) {
  auto* compiled = reinterpret_cast<CompiledObject*>(self);
  const bool of_both = PyUnicode_CompareWithASCIIString(name, "__module__") == 0 ||
                       PyUnicode_CompareWithASCIIString(name, "__doc__") == 0;
  if (of_both) {
    PyObject* own = compiled->attributes != nullptr ? PyDict_GetItemWithError(compiled->attributes, name) : nullptr;
    if (own != nullptr) return Py_NewRef(own);
    return PyErr_Occurred() != nullptr ? nullptr : PyObject_GetAttr(compiled->function, name);
  }
  if (PyObject* own = PyObject_GenericGetAttr(self, name)) return own;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
  PyErr_Clear();
  return PyObject_GetAttr(compiled->function, name);
}

// As for functions: a copy is the object itself; a pickle holds its qualified name. A bound one is looked up on its
// object.
PyObject* compiled_copy(PyObject* self, PyObject*) { return Py_NewRef(self); }

// As for methods: binds to a copy of __self__.
PyObject* compiled_deepcopy(PyObject* self, PyObject* memo) {
  auto* compiled = reinterpret_cast<CompiledObject*>(self);
  if (compiled->self == nullptr || compiled->of_class) return Py_NewRef(self);
  return guarded([&] {
    Ref of = checked(PyObject_CallMethod(import_module("copy").get(), "deepcopy", "OO", compiled->self, memo));
    const Compilation& like = **compiled->compilation;
    return make_compiled(like.function, of, like.backend.callable, like.fullgraph, like.most_entries, like.listener,
                         compiled->run_only, like.store, false, like.dynamic);
  });
}

PyObject* compiled_reduce(PyObject* self, PyObject*) {
  auto* compiled = reinterpret_cast<CompiledObject*>(self);
  return guarded([&] {
    const char* which = compiled->self == nullptr ? "__qualname__" : "__name__";
    Ref name = checked(PyObject_GetAttrString(compiled->function, which));
    if (compiled->self == nullptr) return name;
    Ref get = checked(PyObject_GetAttrString(import_module("builtins").get(), "getattr"));
    return checked(Py_BuildValue("(O(OO))", get.get(), compiled->self, name.get()));
  });
}

PyObject* compiled_repr(PyObject* self) {
  auto* compiled = reinterpret_cast<CompiledObject*>(self);
  return guarded([&] {
    Ref name = checked(PyObject_GetAttrString(compiled->function, "__qualname__"));
    if (compiled->self == nullptr)
      return checked(PyUnicode_FromFormat("<compiled function %U at %p>", name.get(), self));
    return checked(
        PyUnicode_FromFormat("<compiled method %U of a %s at %p>", name.get(), Py_TYPE(compiled->self)->tp_name, self));
  });
}

// For a bound method, without the parameter that is bound. Any other has the signature of what it wraps.
PyObject* compiled_signature(PyObject* object, void*) {
  auto* compiled = reinterpret_cast<CompiledObject*>(object);
  if (compiled->self == nullptr) {
    PyErr_SetString(PyExc_AttributeError, "__signature__");
    return nullptr;
  }
  return guarded([&] {
    Ref method = checked(PyMethod_New(compiled->function, compiled->self));
    return checked(PyObject_CallMethod(import_module("inspect").get(), "signature", "O", method.get()));
  });
}

PyMethodDef compiled_methods[] = {{"__copy__", compiled_copy, METH_NOARGS, nullptr},
                                  {"__deepcopy__", compiled_deepcopy, METH_O, nullptr},
                                  {"__reduce__", compiled_reduce, METH_NOARGS, nullptr},
                                  {}};
PyMemberDef compiled_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledObject, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledObject, weak_references), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(CompiledObject, attributes), READONLY, nullptr},
    {"__self__", T_OBJECT, offsetof(CompiledObject, self), READONLY, "what the function is bound to, or None"},
    {"__wrapped__", T_OBJECT, offsetof(CompiledObject, function), READONLY, "the original function"},
    {}};
PyGetSetDef compiled_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {"__signature__", compiled_signature, nullptr, nullptr, nullptr},
    {"_guards", compiled_guards, nullptr, "the guards of each entry, as text", nullptr},
    {"_fullgraph", compiled_fullgraph, nullptr, nullptr, nullptr},
    {"_dynamic", compiled_dynamic, nullptr, nullptr, nullptr},
    {"_residuals", compiled_residuals, nullptr, "the residual program of each entry, as text", nullptr},
    {}};
PyType_Slot compiled_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(compiled_dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(compiled_traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(compiled_clear)},
                                {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_getattro, reinterpret_cast<void*>(compiled_getattr)},
                                {Py_tp_descr_get, reinterpret_cast<void*>(compiled_get)},
                                {Py_tp_repr, reinterpret_cast<void*>(compiled_repr)},
                                {Py_tp_methods, compiled_methods},
                                {Py_tp_members, compiled_members},
                                {Py_tp_getset, compiled_getset},
                                {}};
PyType_Spec compiled_spec = {
    "alternator._C.Compiled", sizeof(CompiledObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    compiled_slots};
PyTypeObject* compiled_type;

}  // namespace

Ref break_counts() {
  Ref dict = checked(PyDict_New());
  for (auto& [name, count] : breaks) {
    check_status(PyDict_SetItemString(dict.get(), name.c_str(), checked(PyLong_FromUnsignedLongLong(count)).get()));
  }
  return dict;
}

void reset_counters() {
  totals = {};
  breaks.clear();
}

static constexpr char kStore[] = "alternator.store";

static void free_store(PyObject* capsule) {
  delete static_cast<std::shared_ptr<Store>*>(PyCapsule_GetPointer(capsule, kStore));
}

static Ref new_store() {
  auto store = std::make_unique<std::shared_ptr<Store>>(std::make_shared<Store>());
  Ref capsule = checked(PyCapsule_New(store.get(), kStore, free_store));
  (void)store.release();
  return capsule;
}

static std::shared_ptr<Store> store_in(Borrowed capsule) {
  if (!capsule || capsule.get() == Py_None) return std::make_shared<Store>();
  auto* store = static_cast<std::shared_ptr<Store>*>(PyCapsule_GetPointer(capsule.get(), kStore));
  if (store == nullptr) throw PyError();
  return *store;
}

Ref make_compiled(Borrowed function, Borrowed self, Borrowed backend, bool fullgraph,
                  std::optional<size_t> most_entries, Borrowed listener, bool run_only, std::shared_ptr<Store> store,
                  bool of_class, std::optional<bool> dynamic) {
  if (!PyFunction_Check(function.get())) {
    PyErr_Format(PyExc_TypeError, "cannot compile %R: it is not a Python function", function.get());
    throw PyError();
  }
  auto compilation = std::make_shared<Compilation>(std::move(store));
  auto* compiled = reinterpret_cast<CompiledObject*>(compiled_type->tp_alloc(compiled_type, 0));
  if (compiled == nullptr) throw PyError();
  compilation->function = Ref::share(function);
  if (self && self.get() != Py_None) compilation->self = Ref::share(self);
  if (listener && listener.get() != Py_None) compilation->listener = Ref::share(listener);
  if (backend && backend.get() != Py_None) compilation->backend = backend::Backend(backend);
  compilation->cache_owner = std::make_shared<CacheOwner>(compilation->function, compilation->self);
  compilation->fullgraph = fullgraph;
  compilation->most_entries = most_entries;
  compilation->dynamic = dynamic;
  compilation->shapes_spec = spec_of(compilation->backend);
  compiled->vectorcall = compiled_vectorcall;
  compiled->run_only = run_only;
  compiled->of_class = of_class && compilation->self;
  compiled->function = function.get();
  compiled->self = compilation->self.get();
  compiled->compilation = new std::shared_ptr<Compilation>(std::move(compilation));
  all().insert(compiled);
  return Ref::steal(reinterpret_cast<PyObject*>(compiled));
}

void reset_all() {
  trace::forget_refuted_checks();
  std::vector<std::shared_ptr<Compilation>> compilations;
  for (CompiledObject* compiled : all()) compilations.push_back(*compiled->compilation);
  for (const std::shared_ptr<Compilation>& compilation : compilations) {
    compilation->store->clear();
    compilation->reset();
  }
}

namespace {

PyObject* module_compile(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"function",        "self",     "backend",  "fullgraph",
                                   "recompile_limit", "listener", "run_only", "store",
                                   "of_class",        "dynamic",  nullptr};
  PyObject *function, *self, *backend, *listener = nullptr, *store = nullptr, *dynamic = Py_None;
  int fullgraph, run_only = 0, of_class = 0;
  Py_ssize_t limit;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOpn|OpOpO:compile", const_cast<char**>(keywords), &function, &self,
                                   &backend, &fullgraph, &limit, &listener, &run_only, &store, &of_class, &dynamic)) {
    return nullptr;
  }
  return guarded([&] {
    const auto most = limit < 0 ? std::nullopt : std::optional<size_t>(static_cast<size_t>(limit));
    return make_compiled(function, self, backend, fullgraph != 0, most, listener, run_only != 0, store_in(store),
                         of_class != 0, dynamic == Py_None ? std::nullopt : std::optional<bool>(dynamic == Py_True));
  });
}

template <void (*kDo)(Compilation&)>
PyObject* module_interception(PyObject*, PyObject* compiled) {
  if (!Py_IS_TYPE(compiled, compiled_type)) return PyErr_Format(PyExc_TypeError, "not compiled: %R", compiled);
  return guarded([&] {
    kDo(**reinterpret_cast<CompiledObject*>(compiled)->compilation);
    return Ref::share(Py_None);
  });
}

PyObject* module_new_store(PyObject*, PyObject*) { return guarded(new_store); }

PyObject* module_clear_store(PyObject*, PyObject* store) {
  return guarded([&] {
    store_in(store)->clear();
    return Ref::share(Py_None);
  });
}

PyObject* module_reset(PyObject*, PyObject*) {
  return guarded([&] {
    reset_all();
    reset_counters();
    return Ref::share(Py_None);
  });
}

PyObject* module_counters(PyObject*, PyObject*) {
  return guarded([&] {
    auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
    return checked(Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:O}", "calls", number(totals.calls), "hits",
                                 number(totals.hits), "traces", number(totals.traces), "graphs", number(totals.graphs),
                                 "eager", number(totals.eager), "breaks", break_counts().get()));
  });
}

PyObject* module_break_reasons(PyObject*, PyObject*) { return guarded(report::reasons); }

PyObject* module_break_every(PyObject*, PyObject* number) {
  const unsigned long long every = PyLong_AsUnsignedLongLong(number);
  if (PyErr_Occurred()) return nullptr;
  return PyLong_FromUnsignedLongLong(std::exchange(trace::Tracer::break_every, every));
}

PyObject* module_after_fork(PyObject*, PyObject*) {
  after_fork_in_child();
  Py_RETURN_NONE;
}

// What the package itself offers to traced programs, in place of names that the core would have to know.
PyObject* module_mark(PyObject*, PyObject* arguments) {
  PyObject *graph_break, *is_compiling, *break_switch;
  if (PyArg_ParseTuple(arguments, "O!O!O!", &PyFunction_Type, &graph_break, &PyFunction_Type, &is_compiling,
                       &PyDict_Type, &break_switch) == 0)
    return nullptr;
  trace::mark_function(graph_break, trace::Mark::kGraphBreak);
  trace::mark_function(is_compiling, trace::Mark::kCompilingQuery);
  trace::set_break_switch(break_switch);
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"after_fork", module_after_fork, METH_NOARGS,
     "after_fork(): in a child process, ends what other threads had begun"},
    {"break_every", module_break_every, METH_O,
     "break_every(n): every trace breaks at the latest before its n-th instruction; 0: only if it must. Returns the "
     "old n"},
    {"compile", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(module_compile)),
     METH_VARARGS | METH_KEYWORDS,
     "compile(function, self, backend, fullgraph, recompile_limit, listener=None, run_only=False, store=None): a "
     "compiled callable; a negative limit: that of the settings"},
    {"begin_interception", module_interception<begin_interception>, METH_O,
     "begin_interception(compiled): functions called on this thread are compiled like those that it calls"},
    {"end_interception", module_interception<end_interception>, METH_O, "end_interception(compiled)"},
    {"mark_functions", module_mark, METH_VARARGS,
     "mark_functions(graph_break, is_compiling, break_switch): functions that mean something to the tracer, and the "
     "namespace of error_on_graph_break"},
    {"new_store", module_new_store, METH_NOARGS, "new_store(): for compiled callables that share what they compile"},
    {"break_reasons", module_break_reasons, METH_NOARGS, "break_reasons(): a list of (id, cause, hint)"},
    {"clear_store", module_clear_store, METH_O, "clear_store(store): drop the entries that it shares"},
    {"reset", module_reset, METH_NOARGS, "reset(): drop all entries and counts"},
    {"counters", module_counters, METH_NOARGS, "counters(): what happened since the last reset"},
    {}};

}  // namespace

static Ref graph_module_class() {
  return checked(PyObject_GetAttrString(import_module("alternator.graph_module").get(), "GraphModule"));
}

int init_dispatch(PyObject* module) {
  graph::FxGraph::module_class = graph_module_class;
  graph::set_torch_sizes(
      [] { return checked(PyObject_GetAttrString(import_module("alternator.call_sizes").get(), "sizes_of")); });
  if (init_names() < 0 || cpython::init_micros() < 0 || init_capture() < 0 || graph::init_warnings() < 0 ||
      trace::init_trace() < 0)
    return -1;
  Ref type = Ref::steal(PyType_FromSpec(&compiled_spec));
  if (!type || PyModule_AddObjectRef(module, "Compiled", type.get()) < 0) return -1;
  compiled_type = reinterpret_cast<PyTypeObject*>(type.release());
  trace::set_compiled_type(compiled_type);
  return PyModule_AddFunctions(module, functions);
}

}  // namespace alternator::dispatch
