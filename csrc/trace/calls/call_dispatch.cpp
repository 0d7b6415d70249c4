// Calls: Python functions are traced, torch's are recorded, native ones pass the gate.
#include "trace/calls/call_dispatch.h"
#include "trace/calls/class_calls.h"
#include "trace/calls/instance_tests.h"
#include "trace/calls/native_calls.h"
#include "trace/calls/python_functions.h"
#include "trace/calls/slot_calls.h"
#include "trace/calls/weak_references.h"
#include "trace/calls/wrapped_callables.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/attributes.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/torch/torch_calls.h"

#include "lift/lifting/layouts.h"
#include "py/import.h"
#include "py/names.h"
#include "trace/calls/handlers.h"
#include "trace/calls/markers.h"
#include "trace/calls/natives.h"

#include <algorithm>

namespace alternator::trace {

void escape_all(Tracer& t, PyObject* const* arguments, size_t count) {
  for (size_t i = 0; i < count; i++) t.lifter.escape(arguments[i]);
}

namespace {

// --- stages: null without an error passes the call on ---------------------------------------------------------------

Ref call_bound_method(Tracer& t, const Call& call) {
  if (!PyMethod_Check(call.callable.get())) return {};
  const CallWithSelf unbound(call, PyMethod_GET_FUNCTION(call.callable.get()), PyMethod_GET_SELF(call.callable.get()));
  return trace::call(t, unbound.call());
}

// Torch and the builtins take numbers that are symbols; so do classes, which check what they are given.
bool takes_numbers(Tracer& t, Borrowed callable) {
  PyObject* c = callable.get();
  if (!t.handlers.has(callable) || PyType_Check(c) || Natives::table().torch(callable)) return true;
  if (PyFunction_Check(c)) {
    PyObject* module = PyFunction_GET_MODULE(c);
    const char* name = module != nullptr && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
    return name != nullptr && graph::is_of_torch(name);
  }
  PyObject* self = PyCFunction_Check(c) ? PyCFunction_GET_SELF(c) : nullptr;
  if (self == nullptr || !PyModule_Check(self)) return true;
  return self == import_module("builtins").get() || self == import_module("_operator").get() ||
         self == import_module("torch._C").get() || self == import_module("math").get();
}

Ref call_handler(Tracer& t, const Call& call) {
  if (t.backed->any() && !takes_numbers(t, call.callable)) {
    for (size_t i = 0; i < call.count(); i++) t.backed->make_plain(call.arguments[i]);
  }
  return t.handlers.call(t, call);
}

Ref call_torch_api(Tracer& t, const Call& call) {
  const Natives& natives = Natives::table();
  const bool is_torchs = natives.torch(call.callable);
  // Both are torch's too, and must not become nodes.
  if (is_torchs && t.marks->is_disallowed(call.callable)) stop(report::Reason::disallowed, native_name(call.callable));
  if (natives.communicates(call.callable)) stop(report::Reason::native_call, native_name(call.callable));
  return is_torchs || t.marks->is_allowed_in_graph(call.callable) ? call_torch(t, call) : Ref();
}

Ref call_on_plain_values(Tracer& t, const Call& call) {
  if (call.keyword_names || !Natives::table().computed(call.callable)) return {};
  auto is_plain = [](PyObject* argument) {
    if (!PyTuple_CheckExact(argument)) return lift::is_plain(argument);
    PyObject** const items = &PyTuple_GET_ITEM(argument, 0);
    return std::all_of(items, items + PyTuple_GET_SIZE(argument), lift::is_plain);
  };
  if (!std::all_of(call.arguments, call.arguments + call.positional, is_plain)) return {};
  escape_all(t, call);
  const Paused paused(t);
  return checked(PyObject_Vectorcall(call.callable.get(), call.arguments, call.positional, nullptr));
}

Ref call_python_function(Tracer& t, const Call& call) {
  return PyFunction_Check(call.callable.get()) ? call_function(t, call) : Ref();
}

Ref refuse_opaque(Tracer& t, const Call& call) {
  const lift::Known* known = t.lifter.known(call.callable);
  if (known != nullptr && known->opaque)
    stop(report::Reason::opaque_object, std::string("a call of ") + call.callable.type()->tp_name);
  return {};
}

Ref test_instance(Tracer& t, const Call& call) {
  if (!PyCFunction_Check(call.callable.get()) || !call.has_positional(1)) return {};
  return real_instance_test(t, call.callable, call.arguments[0]);
}

Ref call_listed_native(Tracer& t, const Call& call) {
  if (!Natives::table().function(call.callable)) return {};
  Ref result = call_native(t, call.callable, call.arguments, call.positional, call.keyword_names);
  check_finalization_is_reported(t, result);
  return result;
}

bool is_of_heap_type(Borrowed object) { return (object.type()->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0; }

Ref call_special_method(Tracer& t, const Call& call) {
  if (!is_of_heap_type(call.callable)) return {};
  Ref bound = special_method(t, call.callable, names::__call__);
  if (!bound || !(PyMethod_Check(bound.get()) || is_compiled(bound))) return {};
  return trace::call(t, call.of(bound));
}

Ref call_inherited_slot(Tracer& t, const Call& call) {
  if (!is_of_heap_type(call.callable)) return {};
  PyTypeObject* const base = lift::layout_base(call.callable.type());
  if (base == nullptr || base->tp_call == nullptr || base->tp_call != call.callable.type()->tp_call) return {};
  if (!Natives::table().type(base)) return {};
  return call_native(t, call.callable, call.arguments, call.positional, call.keyword_names);
}

Ref raise_not_callable(Tracer&, const Call& call) {
  return call.callable.type()->tp_call == nullptr ? checked(call.run()) : Ref();
}

// What each stage handles, and why it stands where it stands. docs/trace/calls.md names them in this order.
constexpr Handler kStages[] = {
    // `self.method(x)` is `function(self, x)`. First: the tables below know functions, since a method is bound anew
    // whenever it is read; and call_listed_native would run it, since the natives table lists the type of methods.
    call_bound_method,
    // `items.__len__()`, `x.__setitem__(i, y)`: the same for slots of lifted containers and of tensors. Before
    // call_torch_api, where the tensor must be an argument of the node, and before call_listed_native, where the slot
    // would see a container that is lifted in part.
    call_slot_of_container,
    // A weak proxy is called through, a weak reference is checked. Before call_listed_native, since the natives table
    // lists both types.
    call_weak_reference,
    // What a callable means to the tracer is more than what it is made of: before all that goes by its kind.
    call_handler,
    // A node. Before call_python_function: much of torch's API is written in Python and would be inlined, as would a
    // function that the user allows in the graph.
    call_torch_api,
    // Python functions of torch that compute plain values from plain values run as they are. Before
    // call_python_function, which traces them where they are given anything else.
    call_on_plain_values,
    // Marked functions, and those that are traced. None of the stages below takes a Python function: this one stands
    // above them because most calls are its own.
    call_python_function,
    // What alternator.compile and torch.jit.script() return, and `length = items.__len__` from before the trace. Before
    // refuse_opaque: they are opaque objects, but each guards what it calls. A slot must not get to the stages for
    // slots below, which guard nothing.
    call_compiled,
    call_scripted,
    call_preexisting_slot,
    // No guard covers what the call of any other opaque object does. Before everything that looks inside of the
    // callable, or runs it.
    refuse_opaque,
    // `len.__call__(x)` is `len(x)`; `super().__setattr__(name, value)` has a handler. Before call_listed_native, which
    // lets every bound slot run: the gate would not see `len`, nor the tracer the write.
    call_through_call_slot,
    call_slot_with_handler,
    // Instances and classes are made. Before call_listed_native, where every class would pass, since the natives table
    // lists `type`, and without the checks of its constructor; and before call_special_method: the `__call__` of a
    // metaclass is a part of this call.
    call_class,
    // The gate is for what it calls. Before call_listed_native, since the natives table lists the type.
    call_partial,
    // `type.__instancecheck__(cls, x)`, as the hook of a metaclass calls it. Before call_listed_native: native code
    // would read `x.__class__`, which a class may override.
    test_instance,
    // The gate itself: what the natives table lists runs. After the stages that know more of a native than its row.
    call_listed_native,
    // An instance whose class has a `__call__` in Python. After call_listed_native: for an instance of a listed type,
    // the look-up would guard its class in vain.
    call_special_method,
    // A subclass of weakref.ref: native code calls it. After call_special_method, since it may override `__call__`.
    call_inherited_slot,
    // torch.compiler.substitute_in_graph. So late because TorchDynamo is asked, in Python: only for what would break.
    call_substitute,
    // The TypeError of eager. Last: what is callable, and got here, is a break.
    raise_not_callable,
};

}  // namespace

Ref call(Tracer& t, const Call& call) {
  for (const Handler stage : kStages) {
    if (Ref result = stage(t, call)) return result;
  }
  stop(report::Reason::native_call, native_name(call.callable));
}

}  // namespace alternator::trace
