// Classes with a user-defined __torch_function__. Torch itself determines which methods to call and in which order: the
// recording mode returns NotImplemented, then torch calls the methods, whose frames are traced like any callback's. The
// calls that they make are recorded.
#include "trace/torch/torch_function_methods.h"
#include "trace/calls/call_dispatch.h"
#include "trace/calls/markers.h"
#include "trace/calls/python_functions.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/attributes.h"
#include "trace/opcodes/items.h"
#include "trace/torch/tensor_attributes.h"
#include "trace/torch/torch_calls.h"
#include "trace/torch/torch_function_modes.h"

#include "graph/record/record_error.h"
#include "graph/record/recording_mode.h"
#include "graph/record/torch_function_classes.h"
#include "graph/record/torch_types.h"
#include "lift/lifting/classes.h"
#include "py/lasting.h"
#include "py/names.h"
#include "trace/calls/bound_slots.h"
#include "trace/calls/handlers.h"
#include "trace/calls/natives.h"

#include <algorithm>

namespace alternator::trace {

namespace {

struct OverrideFunctions {
  Ref is_subclass = graph::torch_name("builtins", "issubclass");
  Ref as_subclass =
      checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(graph::torch_types().tensor), "as_subclass"));
  // The functions whose results torch.Tensor.__torch_function__ does not convert to the subclass: constant in torch.
  Ref unwrapped =
      checked(PyObject_CallNoArgs(graph::torch_name("torch.overrides", "get_default_nowrap_functions").get()));
  Ref name = checked(PyUnicode_InternFromString("__torch_function__"));
};
const OverrideFunctions& functions() {
  static constinit Lasting<OverrideFunctions> lasting;
  return lasting.get();
}

// The object that the callable is bound to, or null.
Ref self_of(Borrowed callable) {
  if (PyCFunction_Check(callable.get())) return Ref::share(PyCFunction_GET_SELF(callable.get()));
  if (!Py_IS_TYPE(callable.get(), &_PyMethodWrapper_Type)) return {};
  return checked(PyObject_GetAttrString(callable.get(), "__self__"));
}

constexpr int kDeepest = 8;  // torch looks into containers too, but less deep; a container may contain itself

// The first instance of a class in the arguments of a call; null: there is none.
Borrowed instance_of(Borrowed type, Borrowed object, int depth = 0) {
  PyObject* raw = object.get();
  if (Borrowed(Py_TYPE(raw)) == type) return object;
  if (depth == kDeepest) return {};
  if (PyTuple_Check(raw) || PyList_Check(raw)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(raw); i++)
      if (Borrowed found = instance_of(type, PySequence_Fast_GET_ITEM(raw, i), depth + 1)) return found;
  } else if (PyDict_Check(raw)) {
    PyObject *key, *value;
    for (Py_ssize_t position = 0; PyDict_Next(raw, &position, &key, &value);)
      if (Borrowed found = instance_of(type, value, depth + 1)) return found;
  }
  return {};
}

bool is_same_method(Borrowed left, Borrowed right) {
  if (!PyMethod_Check(left.get()) || !PyMethod_Check(right.get()))
    return left == right && PyFunction_Check(left.get());  // a static method
  return PyMethod_GET_FUNCTION(left.get()) == PyMethod_GET_FUNCTION(right.get()) &&
         PyMethod_GET_SELF(left.get()) == PyMethod_GET_SELF(right.get()) && PyType_Check(PyMethod_GET_SELF(left.get()));
}

// x.as_subclass(cls): torch dispatches to no __torch_function__.
bool is_as_subclass(Borrowed callable) {
  const Ref& method = functions().as_subclass;
  return callable == Borrowed(method) ||
         (PyCFunction_Check(callable.get()) &&
          callable.as<PyCFunctionObject>()->m_ml == method.as<PyMethodDescrObject>()->d_method);
}

// A function that becomes a plain node, without special handling.
bool is_recordable(Borrowed function) {
  const Natives& natives = Natives::table();
  const graph::TorchTypes& torch = graph::torch_types();
  return natives.torch(function) && !natives.recorded(function) && function.get() != natives.cond &&
         function.get() != natives.checkpoint && function != Borrowed(torch.tensor_iter) &&
         function != Borrowed(torch.tensor_item) && function != Borrowed(torch.torch_function);
}

// Tensor.shape.__get__ and its like: the getset descriptor; null: it is none of these.
PyDescrObject* tensor_getter(Borrowed callable) {
  if (!Py_IS_TYPE(callable.get(), &_PyMethodWrapper_Type)) return nullptr;
  Ref self = self_of(callable);
  if (!Py_IS_TYPE(self.get(), &PyGetSetDescr_Type)) return nullptr;
  auto* descriptor = reinterpret_cast<PyDescrObject*>(self.get());  // the wrapper owns it
  if (!PyType_IsSubtype(graph::torch_types().tensor, descriptor->d_type)) return nullptr;
  Ref name = checked(PyObject_GetAttr(callable.get(), names::__name__));
  return PyUnicode_CompareWithASCIIString(name.get(), "__get__") == 0 ? descriptor : nullptr;
}

}  // namespace

static bool holds_overridden(lift::Lifter& lifter, Borrowed object, int depth) {
  PyObject* raw = object.get();
  PyTypeObject* type = Py_TYPE(raw);
  if (type == graph::torch_types().tensor || type == graph::torch_types().parameter) return false;
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) {
    // The absence of __torch_function__ is guarded too.
    if (!PyType_Check(raw)) (void)lifter.classes->attribute(type, functions().name);
    if (graph::has_own_torch_function(type)) return true;
  }
  if (depth == kDeepest) return false;
  if (PyTuple_Check(raw) || PyList_Check(raw)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(raw); i++)
      if (holds_overridden(lifter, PySequence_Fast_GET_ITEM(raw, i), depth + 1)) return true;
  } else if (PyDict_Check(raw)) {
    PyObject *key, *value;
    for (Py_ssize_t position = 0; PyDict_Next(raw, &position, &key, &value);)
      if (holds_overridden(lifter, value, depth + 1)) return true;
  }
  return false;
}

bool TorchFunctionMethods::is_overridden(Borrowed object) {
  return graph::subclasses_are_on() && holds_overridden(t.lifter, object, 0);
}

bool TorchFunctionMethods::is_overridden(PyObject* const* objects, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (is_overridden(objects[i])) return true;
  return false;
}

bool TorchFunctionMethods::is_overridden_call(const Call& call) {
  if (!graph::subclasses_are_on()) return false;
  if (is_overridden(call.arguments, call.count())) return true;
  Ref self = self_of(call.callable);
  return self && graph::is_tensor(self) && is_overridden(self);
}

// Native code calls the methods: as with a key function of sorted(), the trace cannot break inside them, only at the
// call.
void TorchFunctionMethods::note_override(Borrowed types, Borrowed arguments, Borrowed keywords) {
  if (Tracer::current() != &t) graph::record_error("a __torch_function__ is called by native code");
  try {
    if (t.function_modes->below_recording() > 0) {
      t.result.wants_modes = !t.options.has_modes && t.function_modes->own == 0;
      stop(report::Reason::native_call, "a __torch_function__ under a default device");
    }
    if (t.is_transformed() || t.recorder.is_silent())
      stop(report::Reason::torch_call, "a __torch_function__ in a transform or a subgraph");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types.get()); i++) {
      Borrowed type = PyTuple_GET_ITEM(types.get(), i), object = instance_of(type, arguments);
      if (!object && keywords) object = instance_of(type, keywords);
      if (!object)
        stop(report::Reason::torch_call, "a __torch_function__ of an object that is not among the arguments");
      // Torch looks the method up natively: it must find the one that the traced program would find.
      Ref seen = get_attribute(t, object, functions().name);
      if (!is_same_method(seen, checked(PyObject_GetAttr(object.get(), functions().name.get()))))
        stop(report::Reason::native_call, "a __torch_function__ that is not a class method");
    }
    overrides_seen_++;
  } catch (const Stop& stop) {
    t.stop_here(stop.reason, stop.context);
    throw PyError();
  } catch (const lift::CannotLift& error) {
    t.stop_here(report::Reason::cannot_lift, error.what());
    throw PyError();
  }
}

Ref TorchFunctionMethods::call_overridden(const Call& call) {
  const std::string name = native_name(call.callable);
  if (t.is_transformed() || t.recorder.is_silent())
    stop(report::Reason::torch_call, name + ": a __torch_function__ in a transform or a subgraph");
  if (is_as_subclass(call.callable) && !t.function_modes->is_active()) {
    const graph::WithoutSubclasses without;
    return call_torch(t, call);
  }
  // Torch's Python functions call handle_torch_function themselves.
  if (PyFunction_Check(call.callable.get())) return call_function(t, call);
  PyTypeObject* kind = call.callable.type();
  const bool known = PyCFunction_Check(call.callable.get()) || kind == &PyMethodDescr_Type ||
                     kind == &PyWrapperDescr_Type || kind == &_PyMethodWrapper_Type;
  if (!known || Natives::table().recorded(call.callable))
    stop(report::Reason::torch_call, name + " of a class with a __torch_function__");
  return run_overridden(name, [&] { return call.run().release(); });
}

Ref TorchFunctionMethods::run_overridden(const std::string& what, const std::function<PyObject*()>& run) {
  // The methods' frames do not exist any more afterwards.
  cpython::Frame* const caller = t.current_frame;
  const int index = t.current_index;
  const uint64_t before = overrides_seen_;
  t.session.clear_failure();
  Ref result = Ref::steal(run());
  t.current_frame = caller;
  t.current_index = index;
  if (!result) stop_for_torch(t, what);
  // If torch has dispatched to no __torch_function__, the guards for this path are missing.
  if (overrides_seen_ == before) stop(report::Reason::torch_call, what + " of a class with a __torch_function__");
  return result;
}

bool register_torch_functions(Handlers& handlers) {
  functions();
  load_torch_calls();
  const graph::TorchTypes& torch = graph::torch_types();
  handlers.add(torch.torch_function,
               [](Tracer& t, const Call& call) { return t.torch_functions->call_torchs_override(call); });
  handlers.add(torch.without_subclasses,
               [](Tracer& t, const Call& call) { return t.torch_functions->call_without_subclasses(call); });
  handlers.add("torch._C", "_has_torch_function _has_torch_function_unary _has_torch_function_variadic",
               [](Tracer& t, const Call& call) { return t.torch_functions->has_torch_function(call); });
  // Only its `self` says which slot of what a method wrapper is.
  handlers.add_instances(&_PyMethodWrapper_Type,
                         [](Tracer& t, const Call& call) { return t.torch_functions->call_tensor_getter(call); });
  return true;
}

static bool is_or_holds_symbol(PyObject* object) {
  if (!PyTuple_Check(object) && !PyList_Check(object)) return fake::is_symbol(object);
  PyObject** items = PySequence_Fast_ITEMS(object);
  return std::any_of(items, items + PySequence_Fast_GET_SIZE(object),
                     [](PyObject* item) { return fake::is_symbol(item); });
}

// Whether torch would dispatch to a __torch_function__: the recording mode must not count for the program.
Ref TorchFunctionMethods::has_torch_function(const Call& call) {
  if (call.keyword_names) return {};
  if (!is_overridden(call.arguments, call.positional)) {
    // Of numbers that are symbols only the class is read; the native function would be handed their digits.
    const bool has_symbol = std::any_of(call.arguments, call.arguments + call.positional, is_or_holds_symbol);
    const bool has_modes = t.function_modes->is_active() || t.function_modes->below_recording() > 0;
    return has_symbol && !has_modes ? Ref::share(Py_False) : Ref();
  }
  for (size_t i = 0; i < call.positional; i++) check_use(t, call.arguments[i], "a torch call");
  std::optional<graph::WithoutTopMode> without;
  if (graph::is_top_mode(t.recorder.mode())) without.emplace();
  return checked(PyObject_Vectorcall(call.callable.get(), call.arguments, call.positional, nullptr));
}

// Tensor.shape.__get__(x) is x.shape.
Ref TorchFunctionMethods::call_tensor_getter(const Call& call) {
  const auto& [getter, arguments, count, keyword_names] = call;
  PyDescrObject* descriptor = tensor_getter(getter);
  if (descriptor == nullptr || !call.has_positional(1, 2) || !graph::is_tensor(arguments[0])) return {};
  if (lift::Known* known = t.lifter.known(getter)) {  // pre-existing: its identity is guarded
    if (!bound_slot(getter, *t.tree, known->source)) stop(report::Reason::tensor_attribute, native_name(getter));
    t.tree->guard(t.tree->child(known->source, lift::Access::kMethodSelf),
                  {lift::GuardKind::kIs, Ref::share(reinterpret_cast<PyObject*>(descriptor))});
  }
  // A subclass may define another attribute under this name.
  if (_PyType_Lookup(Py_TYPE(arguments[0]), descriptor->d_name) != reinterpret_cast<PyObject*>(descriptor))
    stop(report::Reason::tensor_attribute, native_name(getter));
  return get_from_tensor(t, arguments[0], descriptor->d_name);
}

Ref TorchFunctionMethods::call_spread(Borrowed callable, Borrowed arguments, Borrowed keywords) {
  std::vector<PyObject*> flat{nullptr};
  const Py_ssize_t positional = PyTuple_GET_SIZE(arguments.get());
  for (Py_ssize_t i = 0; i < positional; i++) flat.push_back(PyTuple_GET_ITEM(arguments.get(), i));
  Ref names;
  if (PyDict_Check(keywords.get()) && PyDict_GET_SIZE(keywords.get()) > 0) {
    names = checked(PyTuple_New(PyDict_GET_SIZE(keywords.get())));
    PyObject *key, *value;
    Py_ssize_t at = 0;
    for (Py_ssize_t position = 0; PyDict_Next(keywords.get(), &position, &key, &value); at++) {
      if (!PyUnicode_Check(key)) stop(report::Reason::torch_call, "keywords that are not strings");
      PyTuple_SET_ITEM(names.get(), at, Py_NewRef(key));
      flat.push_back(value);
    }
  }
  return call_torch(t, {callable, flat.data() + 1, static_cast<size_t>(positional), names});
}

// torch._C._disabled_torch_function_impl(func, types, args, kwargs): calls func without dispatching to subclasses.
Ref TorchFunctionMethods::call_without_subclasses(const Call& call) {
  if (call.keyword_names) return {};
  const auto& [callable, arguments, count, keyword_names] = call;
  escape_all(t, call);
  const auto refuse = [] { stop(report::Reason::native_call, "torch._C._disabled_torch_function_impl"); };
  if (count < 3 || count > 4 || !PyTuple_CheckExact(arguments[2]) ||
      (count > 3 && arguments[3] != Py_None && !PyDict_CheckExact(arguments[3])) || t.function_modes->is_active())
    refuse();
  const graph::WithoutSubclasses without;
  if (count == 3 || arguments[3] == Py_None || PyDict_GET_SIZE(arguments[3]) == 0) {
    PyObject* args = arguments[2];
    if (Ref value = call_tensor_getter({arguments[0], &PyTuple_GET_ITEM(args, 0), size_t(PyTuple_GET_SIZE(args)), {}}))
      return value;
  }
  if (!is_recordable(arguments[0]) || t.marks->is_disallowed(arguments[0])) refuse();
  return call_spread(arguments[0], arguments[2], count > 3 ? arguments[3] : Py_None);
}

namespace {

// The arguments of torch.Tensor.__torch_function__, the function. `cls` is null if they do not fit.
struct OverrideArguments {
  PyObject *cls, *function, *types, *args, *kwargs;
};
OverrideArguments bind_override(const Call& call) {
  constexpr const char* kNames[] = {"cls", "func", "types", "args", "kwargs"};
  PyObject* given[] = {nullptr, nullptr, nullptr, nullptr, Py_None};
  if (call.positional > std::size(given)) return {};
  std::copy(call.arguments, call.arguments + call.positional, given);
  for (size_t i = 0; i < call.keywords(); i++) {
    size_t at = call.positional;
    PyObject* name = PyTuple_GET_ITEM(call.keyword_names.get(), static_cast<Py_ssize_t>(i));
    while (at < std::size(given) && PyUnicode_CompareWithASCIIString(name, kNames[at]) != 0) at++;
    if (at == std::size(given)) return {};
    given[at] = call.arguments[call.positional + i];
  }
  auto [cls, function, types, args, kwargs] = given;
  if (cls == nullptr || function == nullptr || types == nullptr || args == nullptr || !PyType_Check(cls) ||
      !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), graph::torch_types().tensor) ||
      !PyTuple_CheckExact(types) || !PyTuple_CheckExact(args) || (kwargs != Py_None && !PyDict_CheckExact(kwargs)))
    return {};
  return {cls, function, types, args, kwargs};
}

}  // namespace

// torch.Tensor.__torch_function__(func, types, args=(), kwargs=None) for a class: calls func without dispatching to
// subclasses and converts the result to the class. Recorded as one node instead of one for each step. No frame runs for
// it; where one is needed, its Python code is inlined instead.
Ref TorchFunctionMethods::call_torchs_override(const Call& call) {
  const auto [cls, function, types, args, kwargs] = bind_override(call);
  if (cls == nullptr) return {};
  const bool is_getter = tensor_getter(function) != nullptr;
  const bool is_call = is_recordable(function) && !t.marks->is_disallowed(function);
  if ((!is_getter && !is_call) || t.function_modes->is_active() || !graph::is_top_mode(t.recorder.mode()) ||
      t.is_transformed() || t.recorder.is_silent() || t.recorder.has_symbols() ||
      at::impl::torch_function_all_disabled())
    return {};
  t.lifter.escape(args);
  t.lifter.escape(kwargs);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); i++) {
    PyObject* pair[] = {nullptr, cls, PyTuple_GET_ITEM(types, i)};
    if (pair[2] == cls) continue;
    Ref answer = trace::call(t, {functions().is_subclass, pair + 1, 2, {}});
    if (answer.get() != Py_True) return Ref::share(Py_NotImplemented);
  }
  const graph::WithoutSubclasses without;
  Ref result;
  if (is_getter) {
    if (kwargs != Py_None && PyDict_GET_SIZE(kwargs) > 0) stop(report::Reason::torch_call, native_name(function));
    result =
        call_tensor_getter({function, &PyTuple_GET_ITEM(args, 0), static_cast<size_t>(PyTuple_GET_SIZE(args)), {}});
    if (!result) stop(report::Reason::torch_call, native_name(function));
  } else {
    for_class = cls;
    result = call_spread(function, args, kwargs);
    if (std::exchange(for_class, nullptr) == cls) return result;
  }
  const int not_converted = PySet_Contains(functions().unwrapped.get(), function);
  if (not_converted < 0) throw PyError();
  return not_converted != 0 ? std::move(result) : convert_result(std::move(result), cls);
}

Ref TorchFunctionMethods::convert_result(Ref result, Borrowed cls) {
  if (cls == Borrowed(graph::torch_types().tensor)) return result;
  if (graph::is_tensor(result)) {
    if (PyObject_TypeCheck(result.get(), cls.as<PyTypeObject>())) return result;
    PyObject* pair[] = {nullptr, result.get(), cls.get()};
    return call_torch(t, {functions().as_subclass, pair + 1, 2, {}});
  }
  if (!PyTuple_Check(result.get()) && !PyList_Check(result.get())) return result;
  // Torch reconstructs the container from the same elements.
  const bool is_plain_type =
      PyTuple_CheckExact(result.get()) || PyList_CheckExact(result.get()) || result.type() == graph::torch_types().size;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(result.get()); i++) {
    if (!is_plain_type || !lift::is_plain(PySequence_Fast_GET_ITEM(result.get(), i)))
      stop(report::Reason::torch_call, "a container of tensors of a subclass");
  }
  return result;
}

}  // namespace alternator::trace
