// Calls: Python functions are traced, torch's are recorded, native ones pass the gate.
#include "trace/calls/call_dispatch.h"
#include "trace/calls/constant_functions.h"
#include "trace/calls/instance_tests.h"
#include "trace/calls/native_callbacks.h"
#include "trace/calls/native_calls.h"
#include "trace/calls/reflective_builtins.h"
#include "trace/core/frame_access.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/attributes.h"
#include "trace/opcodes/class_creation.h"
#include "trace/opcodes/items.h"
#include "trace/stdlib/context_variables.h"
#include "trace/stdlib/decimals.h"
#include "trace/symbolic/deferred_values.h"
#include "trace/symbolic/speculated_checks.h"
#include "trace/symbolic/unbacked_arithmetic.h"
#include "trace/torch/module_attributes.h"
#include "trace/torch/torch_calls.h"
#include "trace/torch/torch_function_methods.h"

#include "cpython/objects.h"
#include "cpython/version.h"
#include "fake/numpy_scalar_input.h"
#include "lift/lifting/cells.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/layouts.h"
#include "lift/lifting/write_log.h"
#include "lift/sources/decimal_values.h"
#include "lift/sources/finalization.h"
#include "py/lasting.h"
#include "py/names.h"
#include "trace/calls/bound_slots.h"
#include "trace/calls/handlers.h"
#include "trace/calls/markers.h"
#include "trace/calls/native_reads.h"
#include "trace/calls/natives.h"
#include "trace/numpy/concrete_arrays.h"
#include "trace/soundness/finalizers.h"
#include "trace/soundness/value_text.h"
#include "trace/stdlib/python_rng_seeds.h"
#include "trace/torch/grad_mode_blocks.h"
#include "trace/torch/tensor_hooks.h"

#include <c10/core/GradMode.h>

#include <algorithm>

namespace alternator::trace {

static Ref call_compiled(Tracer& t, Borrowed compiled, PyObject* const* arguments, size_t positional,
                         Borrowed keyword_names);
static Ref call_type(Tracer& t, Borrowed type, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
static Ref call_partial(Tracer& t, Borrowed partial, PyObject* const* arguments, size_t positional,
                        Borrowed keyword_names);
static void check_alive(Tracer& t, Borrowed reference);
static Ref call_computed(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t count);

// Calls a builtin that reads process state, and guards the result.
Ref query(Tracer& t, Borrowed builtin) {
  Ref answer = checked(PyObject_CallNoArgs(builtin.get()));
  if (!lift::is_plain(answer.get())) stop(report::Reason::native_call, native_name(builtin));
  lift::Source* source = t.tree->child(t.lifter.constant(builtin), lift::Access::kQuery);
  t.tree->guard(source, {lift::GuardKind::kEquals, Ref(answer)});
  return answer;
}

void escape_all(Tracer& t, PyObject* const* arguments, size_t count) {
  for (size_t i = 0; i < count; i++) t.lifter.escape(arguments[i]);
}

// What `len.__call__(x)` or `type(len).__call__(len, x)` calls: the gate applies to that callable. Classes are
// excluded, since a metaclass may have overridden `type.__call__`.
static Ref called_through_slot(Borrowed callable, PyObject* const* arguments, size_t positional, bool* with_self) {
  Ref called;
  if (Py_IS_TYPE(callable.get(), &_PyMethodWrapper_Type)) {
    Ref name = checked(PyObject_GetAttr(callable.get(), names::__name__));
    if (PyUnicode_Compare(name.get(), names::__call__) != 0) return {};
    called = checked(PyObject_GetAttrString(callable.get(), "__self__"));
  } else if (Py_IS_TYPE(callable.get(), &PyWrapperDescr_Type) && positional > 0) {
    auto* slot = callable.as<PyDescrObject>();
    if (PyUnicode_Compare(slot->d_name, names::__call__) != 0 || slot->d_type != Py_TYPE(arguments[0])) return {};
    *with_self = true;
    called = Ref::share(arguments[0]);
  }
  if (!called || PyType_Check(called.get()) || (called.type()->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) return {};
  return called;
}

// items.__len__: the object that a method wrapper is bound to may still be lazy. x.__setitem__: a node names the slot,
// and has the tensor as an argument. Null: it is no method wrapper of a container or tensor.
static Ref slot_of_container(const Tracer& tracer, Borrowed callable) {
  if (!Py_IS_TYPE(callable.get(), &_PyMethodWrapper_Type) || tracer.lifter.known(callable) != nullptr) return {};
  Ref self = checked(PyObject_GetAttrString(callable.get(), "__self__"));
  Ref name, owner;
  if (graph::is_tensor(self)) return slot_of_wrapper(callable, &name, &owner);
  const lift::Known* known = tracer.lifter.known(self);
  if (known == nullptr || (known->shadow == nullptr && !known->instance) || PyType_Check(self.get())) return {};
  if (known->shadow == nullptr && lift::layout_base(self.type()) != lift::known_types().simple_namespace) return {};
  return slot_of_wrapper(callable, &name, &owner);
}

// How many references to an object that the trace made are held by the tracer: to objects whose address was taken, and
// to functions.
static Py_ssize_t kept_by_trace(const Tracer& tracer, Borrowed object) {
  if (tracer.lifter.known(object) != nullptr) return 0;
  const auto kept = std::ranges::count_if(tracer.keep_alive, [&](const Ref& one) { return Borrowed(one) == object; });
  return static_cast<Py_ssize_t>(kept) + (PyFunction_Check(object.get()) && tracer.lifter.made_here(object) ? 1 : 0);
}

// The callback of a weak reference would not be called for an object that the trace keeps alive.
static void check_finalization_is_reported(const Tracer& tracer, const Ref& reference, bool behind_a_break) {
  if (!reference || !PyWeakref_Check(reference.get())) return;
  if (reinterpret_cast<PyWeakReference*>(reference.get())->wr_callback == nullptr) return;
  Borrowed referent = PyWeakref_GetObject(reference.get());
  // A pre-existing object is referenced elsewhere too, unless a slot of a resumed frame holds the last reference.
  // Tensors of the trace are also referenced by the recording.
  const bool kept = tracer.lifter.known(referent) != nullptr
                        ? behind_a_break && lift::is_watched(referent.get())
                        : graph::is_tensor(referent) || kept_by_trace(tracer, referent) > 0;
  if (kept)
    stop(report::Reason::native_call, "a weak reference with a callback, to an object that the trace keeps alive");
}

// A weak reference is dereferenced. A trace keeps objects alive that would be gone in eager: tensors of the recording,
// what the tracer itself references, and pre-existing objects that the program has removed from their place.
static void check_alive(Tracer& t, Borrowed reference) {
  Borrowed referent = PyWeakref_GetObject(reference.get());
  if (referent.get() == Py_None) return;
  const lift::Known* known = t.lifter.known(referent);
  // No guard covers which slot holds an object that has not been read.
  if (known != nullptr && t.finalizers->behind_a_break)
    stop(report::Reason::native_call, "a weak reference to an object that may be gone");
  if (t.lifter.known(reference) != nullptr) {
    if (known != nullptr && t.lifter.write_log->has_writes() && is_dropped(t.lifter, known->original))
      stop(report::Reason::native_call, "a weak reference to an object that may be gone");
    return;
  }
  const bool is_recorded = graph::is_tensor(referent) && t.lifter.known(referent) == nullptr;
  const bool is_preexisting = known != nullptr;
  const Py_ssize_t kept = kept_by_trace(t, referent);
  if ((is_recorded && Py_REFCNT(referent.get()) == 1) || (is_preexisting && t.lifter.write_log->has_writes()) ||
      (kept > 0 && Py_REFCNT(referent.get()) <= kept))
    stop(report::Reason::native_call, "a weak reference to an object that may be gone");
}

// Null: its arguments are not plain values.
static Ref call_computed(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t count) {
  auto is_plain = [](PyObject* argument) {
    if (!PyTuple_CheckExact(argument)) return lift::is_plain(argument);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(argument); i++) {
      if (!lift::is_plain(PyTuple_GET_ITEM(argument, i))) return false;
    }
    return true;
  };
  if (!std::all_of(arguments, arguments + count, is_plain)) return {};
  escape_all(t, arguments, count);
  const Paused paused(t);
  return checked(PyObject_Vectorcall(callable.get(), arguments, count, nullptr));
}

Ref call(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  const Natives& natives = Natives::table();
  const auto call_bound = [&](Borrowed function, Borrowed self) {
    const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
    std::vector<PyObject*> with_self(total + 2);
    with_self[1] = self.get();
    std::copy(arguments, arguments + total, with_self.begin() + 2);
    return call(t, function, with_self.data() + 1, positional + 1, keyword_names);
  };
  if (PyMethod_Check(callable.get()))
    return call_bound(PyMethod_GET_FUNCTION(callable.get()), PyMethod_GET_SELF(callable.get()));
  if (Ref slot = slot_of_container(t, callable))
    return call_bound(slot, checked(PyObject_GetAttrString(callable.get(), "__self__")));
  if (Py_IS_TYPE(callable.get(), &_PyWeakref_CallableProxyType)) {
    if (t.lifter.known(callable) != nullptr) stop(report::Reason::opaque_object, "a pre-existing weak proxy");
    Ref referent = Ref::share(PyWeakref_GetObject(callable.get()));
    if (referent.get() != Py_None) return call(t, referent, arguments, positional, keyword_names);
  }
  if (PyWeakref_CheckRef(callable.get())) check_alive(t, callable);
  if (Ref result = t.handlers.call(t, {callable, arguments, positional, keyword_names})) return result;
  const bool is_torchs = natives.torch(callable);
  if (is_torchs && t.marks->is_disallowed(callable)) stop(report::Reason::disallowed, native_name(callable));
  if (natives.communicates(callable)) stop(report::Reason::native_call, native_name(callable));
  if (is_torchs || t.marks->is_allowed_in_graph(callable))
    return call_torch(t, callable, arguments, positional, keyword_names);
  if (natives.computed(callable) && !keyword_names) {
    if (Ref result = call_computed(t, callable, arguments, positional)) return result;
  }
  if (PyFunction_Check(callable.get())) return call_function(t, callable, arguments, positional, keyword_names);
  if (is_compiled(callable)) return call_compiled(t, callable, arguments, positional, keyword_names);
  lift::Known* known = t.lifter.known(callable);
  if (Ref function = known != nullptr ? scripted_function(callable) : Ref()) {
    t.tree->guard(known->source, {lift::GuardKind::kIs, Ref::share(callable)});
    return call(t, t.lifter.lift(function, t.lifter.constant(function)), arguments, positional, keyword_names);
  }
  if (Ref slot = known != nullptr && known->opaque ? bound_slot(callable, *t.tree, known->source) : Ref()) {
    Ref self = checked(PyObject_GetAttrString(callable.get(), "__self__"));
    self = t.lifter.lift(self, t.tree->child(known->source, lift::Access::kMethodSelf));
    return call_bound(slot, self);
  }
  if (known != nullptr && known->opaque)
    stop(report::Reason::opaque_object, std::string("a call of ") + callable.type()->tp_name);
  bool with_self = false;
  if (Ref called = called_through_slot(callable, arguments, positional, &with_self))
    return call(t, called, arguments + with_self, positional - with_self, keyword_names);
  // A bound slot wrapper that has a handler: super().__setattr__(name, value).
  if (Ref name, owner, slot = slot_of_wrapper(callable, &name, &owner); slot && t.handlers.has(slot)) {
    Ref self = checked(PyObject_GetAttrString(callable.get(), "__self__"));
    return call_bound(slot, self);
  }
  if (PyType_Check(callable.get())) {
    Ref made = call_type(t, callable, arguments, positional, keyword_names);
    check_finalization_is_reported(t, made, t.finalizers->behind_a_break);
    return made;
  }
  if (callable.type() == lift::known_types().partial)
    return call_partial(t, callable, arguments, positional, keyword_names);
  if (PyCFunction_Check(callable.get()) && positional == 1 && !keyword_names) {
    if (Ref answer = real_instance_test(t, callable, arguments[0])) return answer;
  }
  if (natives.function(callable)) {
    Ref result = call_native(t, callable, arguments, positional, keyword_names);
    check_finalization_is_reported(t, result, t.finalizers->behind_a_break);
    return result;
  }
  if ((callable.type()->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) {
    if (Ref bound = special_method(t, callable, names::__call__);
        bound && (PyMethod_Check(bound.get()) || is_compiled(bound))) {
      return call(t, bound, arguments, positional, keyword_names);
    }
    // A tp_call that is inherited from a builtin type: a subclass of weakref.ref.
    PyTypeObject* base = lift::layout_base(callable.type());
    if (base != nullptr && base->tp_call != nullptr && callable.type()->tp_call == base->tp_call && natives.type(base))
      return call_native(t, callable, arguments, positional, keyword_names);
  }
  if (Ref substitute = substitute_of(callable))
    return call(t, t.lifter.lift(substitute, t.lifter.constant(substitute)), arguments, positional, keyword_names);
  if (callable.type()->tp_call == nullptr)  // a TypeError that says so
    return checked(PyObject_Vectorcall(callable.get(), arguments, positional, keyword_names.get()));
  stop(report::Reason::native_call, native_name(callable));
}

// A compiled function that is called inside a compiled function is inlined.
static Ref call_compiled(Tracer& t, Borrowed compiled, PyObject* const* arguments, size_t positional,
                         Borrowed keyword_names) {
  lift::Known* known = t.lifter.known(compiled);
  if (known == nullptr) stop(report::Reason::native_call, "a compiled function of unknown origin");
  lift::Source* source = known->source;
  auto field = [&](const char* text) {
    Ref name = checked(PyUnicode_InternFromString(text));
    Ref value = checked(PyObject_GetAttr(compiled.get(), name.get()));
    return t.lifter.lift(value, t.tree->child(source, lift::Access::kField, name));
  };
  Ref function = field("__wrapped__"), self = field("__self__");
  if (self.get() == Py_None) return call(t, function, arguments, positional, keyword_names);
  return call(t, checked(PyMethod_New(function.get(), self.get())), arguments, positional, keyword_names);
}

// Whether the frame is that of a TransformerEncoder whose fast path, which writes zeros to padded rows, eager may take
// here. The fast path needs weights that do not require grad.
static bool may_take_fast_path(Tracer& tracer, cpython::Frame* frame) {
  static constinit Lasting<PyObject*> lasting;
  PyObject* const encoder = lasting.get([] {
    Ref type = graph::torch_name("torch.nn", "TransformerEncoder");
    Ref forward = checked(PyObject_GetAttrString(type.get(), "forward"));
    return PyFunction_Check(forward.get()) ? Py_NewRef(PyFunction_GET_CODE(forward.get())) : nullptr;
  });
  PyCodeObject* const code = cpython::code_of(frame);
  if (encoder == nullptr || reinterpret_cast<PyObject*>(code) != encoder) return false;
  if (!at::GradMode::is_enabled()) return true;
  for (int i = 0; i < code->co_nlocalsplus; i++) {
    PyObject* layer = frame->localsplus[i];
    if (layer == nullptr ||
        PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(code->co_localsplusnames, i), "first_layer") != 0)
      continue;
    Ref value = Ref::share(layer);
    if (Py_IS_TYPE(layer, &lazy_type)) {  // after a break it may still be lazy
      auto* lazy = reinterpret_cast<LazyObject*>(layer);
      value = tracer.lifter.lift(lazy->value, lazy->source);
    }
    for (const char* name : {"self_attn", "in_proj_weight"})
      value = get_attribute(tracer, value, checked(PyUnicode_InternFromString(name)));
    return !graph::is_tensor(value) || !fake::unpack(value.get()).requires_grad();
  }
  return true;
}

// The differentiable collectives query is_compiling() in order to refuse: they run eagerly.
static bool refuses_compilation(cpython::Frame* frame) {
  PyObject* globals = PyFunction_GET_GLOBALS(reinterpret_cast<PyObject*>(cpython::function_of(frame)));
  PyObject* module = PyDict_GetItemWithError(globals, names::__name__);
  return module != nullptr && PyUnicode_Check(module) &&
         PyUnicode_CompareWithASCIIString(module, "torch.distributed.nn.functional") == 0;
}

// A resumed frame of the optimizers' _get_value(), after a break inside it (Mark::kNumber): eager takes the scalar.
static bool is_inside_get_value(cpython::Frame* frame) {
  static constinit Lasting<PyObject*> lasting;
  PyObject* const get_value_code = lasting.get([] {
    Ref function = graph::torch_name("torch.optim.optimizer", "_get_value");
    return PyFunction_Check(function.get()) ? Py_NewRef(PyFunction_GET_CODE(function.get())) : nullptr;
  });
  return reinterpret_cast<PyObject*>(cpython::code_of(frame)) == get_value_code;
}

// torch.compiler.nested_compile_region: TorchDynamo replaces this function. Otherwise it calls the region.
static bool is_region_placeholder(cpython::Frame* frame) {
  PyObject* const name = cpython::code_of(frame)->co_name;
  if (PyUnicode_CompareWithASCIIString(name, "invoke_subgraph_placeholder") != 0) return false;
  PyObject* const module = PyDict_GetItemString(frame->f_globals, "__name__");
  return module != nullptr && PyUnicode_Check(module) &&
         PyUnicode_CompareWithASCIIString(module, "torch._higher_order_ops.invoke_subgraph") == 0;
}

Ref call_function(Tracer& t, Borrowed function, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  const Mark mark = mark_of(function);
  switch (mark) {
    case Mark::kNone:
      break;
    case Mark::kCompilingQuery:
      if (Denying::active) return Ref::share(Py_False);
      // A module with hooks queries this to avoid a try block under TorchDynamo. Here it runs as in eager, with its
      // always-called hooks.
      if (reinterpret_cast<PyObject*>(cpython::code_of(t.current_frame)) == Natives::table().module_call_code)
        return Ref::share(Py_False);
      if (is_region_placeholder(t.current_frame)) return Ref::share(Py_False);
      if (refuses_compilation(t.current_frame)) stop(report::Reason::skipped, "torch.distributed.nn.functional");
      return Ref::share(is_inside_get_value(t.current_frame) || may_take_fast_path(t, t.current_frame) ? Py_False
                                                                                                       : Py_True);
    case Mark::kCompiled:
    case Mark::kShield: {
      const char* field = mark == Mark::kShield ? "__wrapped__" : "_torchdynamo_inline";
      Ref wrapped = get_from_function(t, function, checked(PyUnicode_InternFromString(field)));
      try {
        return call(t, wrapped, arguments, positional, keyword_names);
      } catch (const PyError&) {
        if (t.result.stopped) throw;
        stop(report::Reason::raises, "through a frame that tracing skips");  // a traceback would lack it
      }
    }
    case Mark::kDisabled:
      stop(report::Reason::disabled, disabled_text(function));
    case Mark::kGraphBreak:
      // Torch breaks the graph around an optimizer's step to avoid copies in Inductor.
      if (!t.options.may_break &&
          reinterpret_cast<PyObject*>(cpython::code_of(t.current_frame)) == Natives::table().optimizer_code)
        return Ref::share(Py_None);
      stop(report::Reason::asked_for,
           positional > 0 && PyUnicode_Check(arguments[0]) ? PyUnicode_AsUTF8(arguments[0]) : "graph_break()");
    case Mark::kSkipFrame:
      stop(report::Reason::skipped,
           positional > 0 && PyUnicode_Check(arguments[0]) ? PyUnicode_AsUTF8(arguments[0]) : "skip_frame()");
    case Mark::kMaterialises:
      // This happens once per module: a graph of it would never be used again.
      stop(report::Reason::uninitialised, positional > 1 ? Py_TYPE(arguments[1])->tp_name : "");
    case Mark::kExpectation:
      if (positional > 0 && expect(t, arguments[0])) return Ref::share(Py_True);
      break;
    case Mark::kDataCheck:
      if (positional >= 2 && positional <= 3 && !keyword_names && t.checks->expect_all(arguments[1]))
        return Ref::share(Py_None);
      break;
    case Mark::kNumber:
      // Eager computes with a Python float here, in double precision. Code that was told that nothing is compiled
      // expects a Python scalar.
      if (!Denying::active && positional == 1 && !keyword_names && graph::is_tensor(arguments[0]) &&
          !t.torch_functions->is_overridden(arguments[0])) {
        const at::Tensor& tensor = fake::unpack(arguments[0]);
        if (tensor.is_cpu() && tensor.dim() == 0 && tensor.is_floating_point() && tensor.scalar_type() != at::kDouble)
          return call_torch(t, checked(PyObject_GetAttrString(THPVariableClass, "double")), arguments, 1, {});
      }
      break;
    case Mark::kNotes:
      return Ref::share(Py_None);
    case Mark::kConstant:
      return call_constant(t, function, arguments, positional, keyword_names);
  }
  if (function == Borrowed(Natives::table().tensor_hash) && positional == 1 && !keyword_names)
    return hash_of(t, arguments[0], Natives::table().hash);
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function.get()));
  if (reinterpret_cast<PyObject*>(code) == Natives::table().module_getattr_code && positional == 2 && !keyword_names) {
    if (Ref value = module_attribute(t, arguments[0], arguments[1])) return value;
  }
  if ((code->co_flags & (CO_VARARGS | CO_VARKEYWORDS)) != 0) {
    escape_all(t, arguments,
               positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0));
  }
  // The caller may still report about its own instruction; the callee's frame is gone then.
  cpython::Frame* const caller = t.current_frame;
  const int index = t.current_index;
  Ref result = Ref::steal(
      PyObject_Vectorcall(function.get(), arguments, positional | PY_VECTORCALL_ARGUMENTS_OFFSET, keyword_names.get()));
  t.current_frame = caller;
  t.current_index = index;
  return checked(std::move(result));
}

PyTypeObject* check_class_call(Tracer& t, PyTypeObject* type) {
  PyTypeObject* base = lift::layout_base(type);
  if (base == nullptr || !(Natives::table().type(base) || PyType_IsSubtype(base, &PyType_Type))) {
    stop(report::Reason::native_call, native_name(reinterpret_cast<PyObject*>(type)));
  }
  if (type->tp_finalize != nullptr && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && base != type) {
    stop(report::Reason::finaliser, type->tp_name);
  }
  if (!t.lifter.classes->use_special_methods(type))
    stop(report::Reason::native_call, std::string("a special method of ") + type->tp_name + " is no function");
  if ((Py_TYPE(type)->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) t.lifter.classes->use_special_methods(Py_TYPE(type));
  return base;
}

// A partial calls its function with more arguments: the gate applies to that function.
static Ref call_partial(Tracer& t, Borrowed partial, PyObject* const* arguments, size_t positional,
                        Borrowed keyword_names) {
  auto field = [&](const char* name) { return checked(PyObject_GetAttrString(partial.get(), name)); };
  Ref function = field("func"), first = field("args"), named = field("keywords");
  std::vector<PyObject*> all{nullptr};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(first.get()); i++) all.push_back(PyTuple_GET_ITEM(first.get(), i));
  all.insert(all.end(), arguments, arguments + positional);
  const size_t total = all.size() - 1;
  Ref merged = checked(PyDict_Copy(named.get()));
  for (Py_ssize_t i = 0; keyword_names && i < PyTuple_GET_SIZE(keyword_names.get()); i++) {
    check_status(PyDict_SetItem(merged.get(), PyTuple_GET_ITEM(keyword_names.get(), i),
                                arguments[positional + static_cast<size_t>(i)]));
  }
  if (PyDict_GET_SIZE(merged.get()) == 0) return call(t, function, all.data() + 1, total, {});
  std::vector<PyObject*> names;
  PyObject *key, *value;
  for (Py_ssize_t position = 0; PyDict_Next(merged.get(), &position, &key, &value);) {
    if (!PyUnicode_Check(key)) {
      PyErr_SetString(PyExc_TypeError, "keywords must be strings");
      throw PyError();
    }
    names.push_back(key);
    all.push_back(value);
  }
  Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(names.size())));
  for (size_t i = 0; i < names.size(); i++)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), Py_NewRef(names[i]));
  return call(t, function, all.data() + 1, total, tuple);
}

static Ref call_type(Tracer& t, Borrowed type_object, PyObject* const* arguments, size_t positional,
                     Borrowed keyword_names) {
  auto* type = type_object.as<PyTypeObject>();
  const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
  escape_all(t, arguments, total);
  if (type == &PySuper_Type && total == 0) {
    // super() itself reads the current frame's first argument, and the __class__ cell.
    PyObject*& first = t.current_frame->localsplus[0];
    if (first != nullptr && Py_IS_TYPE(first, &lazy_type)) {
      auto* lazy = reinterpret_cast<LazyObject*>(first);
      Ref lifted = t.lifter.lift(lazy->value, lazy->source);
      Py_DECREF(std::exchange(first, lifted.release()));
    }
    for (int i = 0; i < cpython::code_of(t.current_frame)->co_nlocalsplus; i++) {
      PyObject* cell = t.current_frame->localsplus[i];
      if (cell == nullptr || !PyCell_Check(cell) || !t.lifter.cells->is_preexisting(cell)) continue;
      PyObject* name = PyTuple_GET_ITEM(cpython::code_of(t.current_frame)->co_localsplusnames, i);
      if (i != 0 && PyUnicode_CompareWithASCIIString(name, "__class__") != 0) continue;
      if (t.lifter.cells->load(cell).get() != PyCell_GET(cell)) stop(report::Reason::native_call, "super()");
    }
    return checked(PyObject_Vectorcall(type_object.get(), arguments, 0, nullptr));
  }
  if (type == &PyType_Type && total == 1 && positional == 1) {
    if (fake::is_numpy_scalar_input(arguments[0])) return Ref::share(fake::example_of(arguments[0]).type());
    if (is_deferred_random(arguments[0])) return Ref::share(&PyFloat_Type);
    if (is_deferred_string(arguments[0])) return Ref::share(&PyUnicode_Type);
    if (is_hook_handle(arguments[0])) stop(report::Reason::hook, "its handle is used");
    if (fake::is_symbol(arguments[0])) return Ref::share(fake::class_of_symbol(arguments[0]));
    return Ref::share(is_identity(arguments[0]) ? &PyLong_Type : Py_TYPE(arguments[0]));
  }
  if (t.hooks->registered && t.hooks->is_hook_handle_class(type))
    stop(report::Reason::hook, "next to a hook of a module");
  const bool makes_class = PyType_IsSubtype(type, &PyType_Type);
  if (makes_class) {
    if (total < 2 || !PyTuple_Check(arguments[1])) stop(report::Reason::native_call, type->tp_name);
    t.classes->begin(arguments[1]);
  }
  if (total == 1 && positional == 1 && fake::is_symbol(arguments[0]) && (type == &PyLong_Type || type == &PyFloat_Type))
    return convert_number(t, type, arguments[0]);
  PyTypeObject* base = check_class_call(t, type);
  if (const lift::DecimalTypes* decimals = lift::decimal_types(); decimals != nullptr && base == decimals->context)
    t.decimals->check_template();
  if (base == native_random() && !is_seed(arguments, positional, 0))
    stop(report::Reason::native_call, std::string(type->tp_name) + " without a seed");
  check_symbols(t, type, base, arguments, total);
  std::optional<lift::WarningsRaise> warnings;
  if (check_array_arguments(type, base, arguments, total)) warnings.emplace();
  const bool only_moves = base == &PyBaseObject_Type || base == &PyList_Type || base == &PyTuple_Type ||
                          base == &PyDict_Type || base == &PyEnum_Type || base == &PyZip_Type ||
                          base == lift::known_types().deque;
  for (size_t i = 0; i < total && !only_moves; i++) check_arrays_within(t, arguments[i]);
  check_type_use(t, type, base, arguments, total);
  if (type == &PyUnicode_Type || type == &PyBytes_Type) {
    if (type == &PyUnicode_Type && total == 1) check_own_text(t, arguments[0]);
    for (size_t i = 0; i < total && (total > 1 || type == &PyBytes_Type); i++) check_text(t, arguments[i]);
  } else {
    for (size_t i = 0; i < total; i++)
      if (!fake::is_symbol(arguments[i])) check_use(t, arguments[i], type->tp_name);
  }
  if (total == 1 && graph::is_tensor(arguments[0]) && base == type && !makes_class) {
    if (Ref number = t.torch_functions->is_overridden(arguments[0]) ? Ref() : convert_tensor(t, type, arguments[0]))
      return number;
    // int(tensor), float(tensor), list(tensor): torch's conversions.
    t.session.clear_failure();
    Ref result = Ref::steal(PyObject_Vectorcall(type_object.get(), arguments, positional, keyword_names.get()));
    if (result) return result;
    stop_for_torch(t, std::string(type->tp_name) + " of a tensor");
  }
  const Reading reading(reads_digits(base));
  Ref made = Ref::steal(PyObject_Vectorcall(type_object.get(), arguments, positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                            keyword_names.get()));
  if (!made && warnings) t.arrays->check_numpy_error(type->tp_name);
  if (!made) throw PyError();
  if (makes_class) t.classes->finish(made);
  return made;
}

}  // namespace alternator::trace
