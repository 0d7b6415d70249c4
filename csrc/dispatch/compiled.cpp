#include "dispatch/compiled.h"

#include "interpreter/capture.h"
#include "interpreter/hook.h"
#include "interpreter/loop.h"
#include "py/names.h"
#include "trace/tracer.h"

#include <structmember.h>

#include <map>
#include <set>

namespace alternator::dispatch {

namespace {

Counters totals;
std::map<std::string, uint64_t> breaks;

struct CompiledObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;
  PyObject* self;      // null: none
  PyObject* on_break;  // called with the text of a break; null: nobody wants to know
  PyObject* weak_references;
  Backend* backend;
  bool fullgraph;
  std::vector<std::shared_ptr<Entry>>* entries;
  size_t most_entries;  // after that, calls that none of them fits run as they are
  bool gave_up;         // ... and that was said once
};

std::set<CompiledObject*>& all() {
  static auto* objects = new std::set<CompiledObject*>;
  return *objects;
}

// Which call the hook waits for, on this thread.
thread_local CompiledObject* requested = nullptr;

void report_break(CompiledObject* compiled, const report::Break& event) {
  breaks[report::name(event.reason)]++;
  if (compiled->on_break == nullptr) return;
  SavedError outer;
  Ref text = Ref::steal(PyUnicode_FromString(event.text().c_str()));
  Ref name = Ref::steal(PyUnicode_FromString(report::name(event.reason)));
  Ref done = text && name
                 ? Ref::steal(PyObject_CallFunctionObjArgs(compiled->on_break, name.get(), text.get(), nullptr))
                 : Ref();
  if (!done) PyErr_WriteUnraisable(compiled->on_break);
}

[[noreturn]] void raise_break(const report::Break& event) {
  PyErr_SetString(PyExc_RuntimeError,
                  ("alternator: fullgraph=True, but the function cannot be captured whole\n" + event.text()).c_str());
  throw PyError();
}

constexpr int kMostTries = 3;

void give_up(CompiledObject* compiled, const guards::Roots& roots) {
  if (compiled->gave_up) return;
  compiled->gave_up = true;
  report_break(compiled,
               report::Break{report::Reason::too_many_entries,
                             "the guard that failed last: " + compiled->entries->front()->guards->failure(roots),
                             Ref::share(PyFunction_GET_CODE(compiled->function)),
                             reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(compiled->function))->co_firstlineno});
}

// The frame of a compiled function, before its first instruction: found, traced, or left to the default loop.
PyObject* run_compiled(CompiledObject* compiled, PyThreadState* ts, cpython::Frame* frame) {
  try {
    const guards::Roots roots{reinterpret_cast<PyObject*>(cpython::function_of(frame)), frame->localsplus};
    std::vector<Ref> values;
    std::shared_ptr<Entry> found;  // another thread may reset() while it runs
    for (auto& entry : *compiled->entries) {
      values.clear();
      if (!entry->guards->check(roots, &values)) continue;
      found = entry;
      break;
    }
    if (found != nullptr) {
      totals.hits += found->eager_because ? 0 : 1;
    } else if (compiled->entries->size() >= compiled->most_entries) {
      give_up(compiled, roots);
    } else {
      totals.traces++;
      for (int tries = 1; found == nullptr; tries++)
        found = trace_entry(frame, *compiled->backend, tries == kMostTries);
      if (found->eager_because) {
        report_break(compiled, *found->eager_because);
      } else if (found->has_graph()) {
        totals.graphs++;
      }
      compiled->entries->insert(compiled->entries->begin(), found);
      values.clear();
      if (!found->eager_because && !found->guards->check(roots, &values))
        throw InternalError("the guards of a new entry do not hold");
    }
    if (found != nullptr && !found->eager_because) {
      found->hits++;
      return found->run(values).release();
    }
    if (found != nullptr && compiled->fullgraph && found->eager_because->reason != report::Reason::raises)
      raise_break(*found->eager_because);
  } catch (const PyError&) {
    return nullptr;
  } catch (const std::exception& error) {
    report_break(compiled, report::Break{report::Reason::internal, error.what(), {}, 0});
    PyErr_Clear();
  }
  totals.eager++;
  return run_default(ts, frame, 0);
}

PyObject* evaluate_requested(PyThreadState* ts, cpython::Frame* frame, int throwflag) {
  CompiledObject* compiled = requested;
  requested = nullptr;
  control.evaluator = nullptr;
  if (throwflag || compiled == nullptr ||
      reinterpret_cast<PyObject*>(cpython::function_of(frame)) != compiled->function ||
      cpython::next_instruction(frame) != cpython::first_instruction(cpython::code_of(frame))) {
    return run_default(ts, frame, throwflag);
  }
  return run_compiled(compiled, ts, frame);
}

PyObject* compiled_vectorcall(PyObject* self, PyObject* const* arguments, size_t flagged, PyObject* keyword_names) {
  auto* compiled = reinterpret_cast<CompiledObject*>(self);
  std::vector<PyObject*> with_self;
  size_t positional = PyVectorcall_NARGS(flagged);
  if (compiled->self != nullptr) {
    const size_t total =
        positional + (keyword_names != nullptr ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names)) : 0);
    with_self.resize(total + 1);
    with_self[0] = compiled->self;
    std::copy(arguments, arguments + total, with_self.begin() + 1);
    arguments = with_self.data();
    positional++;
  }
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(compiled->function));
  const bool plain =
      control.evaluator != nullptr || (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0;
  if (plain) return PyObject_Vectorcall(compiled->function, arguments, positional, keyword_names);
  totals.calls++;
  Ref keep = Ref::share(self);
  acquire_hook();
  requested = compiled;
  control.evaluator = evaluate_requested;
  PyObject* result = PyObject_Vectorcall(compiled->function, arguments, positional, keyword_names);
  requested = nullptr;  // a call that failed before its frame existed
  control.evaluator = nullptr;
  release_hook();
  return result;
}

void compiled_dealloc(PyObject* self) {
  auto* compiled = reinterpret_cast<CompiledObject*>(self);
  PyObject_GC_UnTrack(self);
  all().erase(compiled);
  if (compiled->weak_references != nullptr) PyObject_ClearWeakRefs(self);
  delete compiled->entries;
  delete compiled->backend;
  Py_CLEAR(compiled->function);
  Py_CLEAR(compiled->self);
  Py_CLEAR(compiled->on_break);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

int compiled_traverse(PyObject* self, visitproc visit, void* arg) {
  auto* compiled = reinterpret_cast<CompiledObject*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(compiled->function);
  Py_VISIT(compiled->self);
  Py_VISIT(compiled->on_break);
  return 0;
}

int compiled_clear(PyObject* self) {
  auto* compiled = reinterpret_cast<CompiledObject*>(self);
  compiled->entries->clear();
  Py_CLEAR(compiled->self);
  return 0;
}

PyObject* compiled_get(PyObject* self, PyObject* instance, PyObject*) {
  if (instance == nullptr || instance == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}

PyObject* compiled_guards(PyObject* self, void*) {
  return guarded([&]() -> Ref {
    Ref list = checked(PyList_New(0));
    for (auto& entry : *reinterpret_cast<CompiledObject*>(self)->entries) {
      Ref texts = checked(PyList_New(0));
      for (const std::string& text : entry->guards->texts()) {
        check_status(PyList_Append(texts.get(), checked(PyUnicode_FromString(text.c_str())).get()));
      }
      check_status(PyList_Append(list.get(), texts.get()));
    }
    return list;
  });
}

PyObject* compiled_residuals(PyObject* self, void*) {
  return guarded([&]() -> Ref {
    Ref list = checked(PyList_New(0));
    for (auto& entry : *reinterpret_cast<CompiledObject*>(self)->entries) {
      check_status(PyList_Append(list.get(), checked(PyUnicode_FromString(entry->residual.text().c_str())).get()));
    }
    return list;
  });
}

// Everything else about it is the function's: its name, its text, its attributes.
PyObject* compiled_getattr(PyObject* self, PyObject* name) {
  if (PyObject* own = PyObject_GenericGetAttr(self, name)) return own;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
  PyErr_Clear();
  return PyObject_GetAttr(reinterpret_cast<CompiledObject*>(self)->function, name);
}

template <const char* kName>
PyObject* of_function(PyObject* self, void*) {
  return PyObject_GetAttrString(reinterpret_cast<CompiledObject*>(self)->function, kName);
}
constexpr char kDocName[] = "__doc__";
constexpr char kModuleName[] = "__module__";

PyMemberDef compiled_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledObject, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledObject, weak_references), READONLY, nullptr},
    {"__wrapped__", T_OBJECT, offsetof(CompiledObject, function), READONLY, "the function as it was"},
    {}};
PyGetSetDef compiled_getset[] = {
    {"_guards", compiled_guards, nullptr, "the guards of each entry, as text", nullptr},
    {"__doc__", of_function<kDocName>, nullptr, nullptr, nullptr},
    {"__module__", of_function<kModuleName>, nullptr, nullptr, nullptr},
    {"_residuals", compiled_residuals, nullptr, "the residual program of each entry, as text", nullptr},
    {}};
PyType_Slot compiled_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(compiled_dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(compiled_traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(compiled_clear)},
                                {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_getattro, reinterpret_cast<void*>(compiled_getattr)},
                                {Py_tp_descr_get, reinterpret_cast<void*>(compiled_get)},
                                {Py_tp_members, compiled_members},
                                {Py_tp_getset, compiled_getset},
                                {}};
PyType_Spec compiled_spec = {
    "alternator._C.Compiled", sizeof(CompiledObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    compiled_slots};
PyTypeObject* compiled_type;

}  // namespace

Counters& counters() { return totals; }

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

Ref make_compiled(Borrowed function, Borrowed self, Borrowed backend, bool fullgraph, size_t most_entries,
                  Borrowed on_break) {
  if (!PyFunction_Check(function.get())) {
    PyErr_Format(PyExc_TypeError, "cannot compile %R: it is not a Python function", function.get());
    throw PyError();
  }
  auto* compiled = reinterpret_cast<CompiledObject*>(compiled_type->tp_alloc(compiled_type, 0));
  if (compiled == nullptr) throw PyError();
  compiled->vectorcall = compiled_vectorcall;
  compiled->function = Py_NewRef(function.get());
  compiled->self = self && self.get() != Py_None ? Py_NewRef(self.get()) : nullptr;
  compiled->on_break = on_break && on_break.get() != Py_None ? Py_NewRef(on_break.get()) : nullptr;
  compiled->backend = new Backend{backend && backend.get() != Py_None ? Ref::share(backend) : Ref()};
  compiled->fullgraph = fullgraph;
  compiled->most_entries = most_entries;
  compiled->entries = new std::vector<std::shared_ptr<Entry>>;
  all().insert(compiled);
  return Ref::steal(reinterpret_cast<PyObject*>(compiled));
}

void reset_all() {
  for (CompiledObject* compiled : all()) {
    compiled->entries->clear();
    compiled->gave_up = false;
  }
}

namespace {

PyObject* module_compile(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"function", "self", "backend", "fullgraph", "recompile_limit", "on_break", nullptr};
  PyObject *function, *self, *backend, *on_break;
  int fullgraph;
  Py_ssize_t limit;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOpnO:compile", const_cast<char**>(keywords), &function, &self,
                                   &backend, &fullgraph, &limit, &on_break)) {
    return nullptr;
  }
  return guarded([&] {
    return make_compiled(function, self, backend, fullgraph != 0, limit < 0 ? 0 : static_cast<size_t>(limit), on_break);
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

PyMethodDef functions[] = {
    {"compile", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(module_compile)),
     METH_VARARGS | METH_KEYWORDS,
     "compile(function, self, backend, fullgraph, recompile_limit, on_break): a compiled callable"},
    {"reset", module_reset, METH_NOARGS, "reset(): forget every entry and all counts"},
    {"counters", module_counters, METH_NOARGS, "counters(): what happened since the last reset"},
    {}};

}  // namespace

int init_dispatch(PyObject* module) {
  if (init_names() < 0 || cpython::init_micros() < 0 || init_capture() < 0 || trace::init_trace() < 0) return -1;
  Ref type = Ref::steal(PyType_FromSpec(&compiled_spec));
  if (!type || PyModule_AddObjectRef(module, "Compiled", type.get()) < 0) return -1;
  compiled_type = reinterpret_cast<PyTypeObject*>(type.release());
  return PyModule_AddFunctions(module, functions);
}

}  // namespace alternator::dispatch
