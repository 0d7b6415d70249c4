#include "trace/stdlib/attribute_readers.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/attributes.h"

#include "lift/lifting/immutable_values.h"
#include "lift/sources/python_twins.h"
#include "py/import.h"
#include "py/lasting.h"
#include "trace/calls/handlers.h"
#include "trace/calls/natives.h"

namespace alternator::trace {

namespace {

struct ReaderTypes {
  PyTypeObject *attribute_getter, *method_caller;
};

const ReaderTypes& types() {
  static constinit Lasting<ReaderTypes> lasting;
  return lasting.get([] {
    auto of = [](const char* name) {
      return reinterpret_cast<PyTypeObject*>(
          checked(PyObject_GetAttrString(import_module("operator").get(), name)).release());
    };
    return ReaderTypes{of("attrgetter"), of("methodcaller")};
  });
}

// ... and builtins that the tracer handles only where they are called by name.
bool reads_objects(Borrowed value) {
  const Natives& natives = Natives::table();
  for (PyObject* function : {natives.getattr, natives.hasattr, natives.setattr, natives.isinstance}) {
    if (value.get() == function) return true;
  }
  return reads_attributes(value);
}

}  // namespace

bool reads_attributes(Borrowed value) {
  return value.type() == types().attribute_getter || value.type() == types().method_caller;
}

static Ref call_method(Tracer& t, const lift::GetterArguments& bound, Borrowed object) {
  Borrowed names = bound.positional;
  Ref method = get_attribute(t, object, PyTuple_GET_ITEM(names.get(), 0));
  std::vector<PyObject*> arguments{nullptr};
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(names.get()); i++) arguments.push_back(PyTuple_GET_ITEM(names.get(), i));
  const size_t positional = arguments.size() - 1;
  Ref keyword_names = bound.named ? checked(PyTuple_New(PyDict_GET_SIZE(bound.named.get()))) : Ref();
  PyObject *name = nullptr, *argument = nullptr;
  for (Py_ssize_t at = 0, i = 0; bound.named && PyDict_Next(bound.named.get(), &at, &name, &argument) != 0; i++) {
    PyTuple_SET_ITEM(keyword_names.get(), i, Py_NewRef(name));
    arguments.push_back(argument);
  }
  return trace::call(t, {method, arguments.data() + 1, positional, keyword_names});
}

// operator.attrgetter and methodcaller read attributes natively: done here instead.
static Ref call_getter(Tracer& t, Borrowed getter, Borrowed object) {
  const lift::GetterArguments bound = lift::getter_arguments(getter);
  Borrowed names = bound.positional;
  if (getter.type() == types().method_caller) return call_method(t, bound, object);
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

// Native code gets a Python function instead, which is traced. If that raises, the trace stops (run_for_native).
static Ref call_with_stand_in(Tracer& t, const Call& call, size_t place) {
  std::vector<PyObject*> given{nullptr};
  given.insert(given.end(), call.arguments, call.arguments + call.count());
  Ref function = lift::stand_in_for(call.arguments[place]);
  given[1 + place] = function.get();
  return trace::call(t, {call.callable, given.data() + 1, call.positional, call.keyword_names});
}

// Callables that call their first argument: map(operator.attrgetter("name"), rows).
static Ref call_first(Tracer& t, const Call& call) {
  return call.positional > 1 && reads_objects(call.arguments[0]) ? call_with_stand_in(t, call, 0) : Ref();
}

// Callables that call their `key=`: sorted(rows, key=operator.attrgetter("name")).
static Ref call_key(Tracer& t, const Call& call) {
  for (size_t i = 0; i < call.keywords(); i++) {
    const size_t place = call.positional + i;
    PyObject* name = PyTuple_GET_ITEM(call.keyword_names.get(), static_cast<Py_ssize_t>(i));
    if (reads_objects(call.arguments[place]) && PyUnicode_CompareWithASCIIString(name, "key") == 0)
      return call_with_stand_in(t, call, place);
  }
  return {};
}

bool register_readers(Handlers& handlers) {
  (void)lift::is_stand_in(Py_None);  // resolves what makes stand-ins
  for (PyTypeObject* type : {types().attribute_getter, types().method_caller}) {
    handlers.add_instances(type, [](Tracer& t, const Call& call) {
      return call.has_positional(1) ? call_getter(t, call.callable, call.arguments[0]) : Ref();
    });
  }
  handlers.add("builtins", "map filter", call_first);
  handlers.add("itertools", "takewhile dropwhile filterfalse starmap", call_first);
  handlers.add("functools", "reduce", call_first);
  handlers.add("builtins", "sorted min max", call_key);
  handlers.add_methods(&PyList_Type, "sort", [](Tracer& t, const Call& call) {
    const bool of_subclass =
        PyCFunction_Check(call.callable.get()) != 0 && !PyList_CheckExact(PyCFunction_GET_SELF(call.callable.get()));
    return of_subclass ? Ref() : call_key(t, call);
  });
  handlers.add("itertools", "groupby", [](Tracer& t, const Call& call) {
    if (Ref result = call_key(t, call)) return result;
    return call.positional > 1 && reads_objects(call.arguments[1]) ? call_with_stand_in(t, call, 1) : Ref();
  });
  return true;
}

}  // namespace alternator::trace
