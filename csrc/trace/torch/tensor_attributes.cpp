// Tensor attributes: those that guards cover, those that a fake knows, those that a subclass defines.
#include "trace/core/tracer.h"
#include "trace/opcodes/attributes.h"
#include "trace/torch/torch_function_methods.h"
#include "trace/torch/torch_function_modes.h"
#include "trace/torch/torch_runs.h"

#include "cpython/objects.h"
#include "fake/python_tensor.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/fields.h"
#include "lift/lifting/namespaces.h"
#include "lift/sources/tensor_spec.h"
#include "trace/calls/natives.h"
#include "trace/core/interrupts.h"
#include "trace/torch/tensor_attributes.h"

namespace alternator::trace {

static void use_memory_of(Tracer& t, Borrowed tensor, const std::string& name);

namespace {

bool is_tensor(Borrowed object) { return graph::is_tensor(object); }

// Attributes that the tensor guard does not cover.
bool is_unguarded_tensor_attribute(std::string_view name) {
  for (const char* text : {"_version",     "_is_view",    "_base",           "grad_fn",
                           "retains_grad", "output_nr",   "_backward_hooks", "_post_accumulate_grad_hooks",
                           "is_pinned",    "_cdata",      "untyped_storage", "storage",
                           "data_ptr",     "_grad",       "_grad_fn",        "is_set_to",
                           "is_shared",    "retain_grad", "_use_count",      "__dict__"}) {
    if (name == text) return true;
  }
  return false;
}

// Attributes that expose a tensor's memory, which a fake has not: storages and addresses would be the fake's.
bool shows_memory(std::string_view name) {
  for (const char* text : {"untyped_storage", "storage", "_typed_storage", "_cdata", "is_set_to", "_use_count"}) {
    if (name == text) return true;
  }
  return false;
}

// Facts that all tensors of one storage share: for a tensor created in this trace they are known unless a pre-existing
// tensor shares its storage.
bool is_shared_fact(std::string_view name) {
  for (const char* text : {"_version", "_base", "is_shared", "is_pinned"}) {
    if (name == text) return true;
  }
  return false;
}

c10::StorageImpl* storage_of(Borrowed tensor) {
  const c10::TensorImpl* impl = fake::unpack(tensor.get()).unsafeGetTensorImpl();
  return impl->has_storage() ? impl->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

bool is_hook_method(std::string_view name) {
  return name == "register_hook" || name == "register_post_accumulate_grad_hook";
}

bool is_native_descriptor(Borrowed attribute) {
  PyTypeObject* kind = attribute.type();
  return kind == &PyGetSetDescr_Type || kind == &PyMemberDescr_Type || kind == &PyMethodDescr_Type ||
         kind == &PyWrapperDescr_Type || kind == &PyClassMethodDescr_Type || PyCFunction_Check(attribute.get());
}

// Whether the attribute comes from a class in torch, not from a user's subclass.
bool has_torchs_attribute(PyTypeObject* type, Borrowed name) {
  PyObject* order = type->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(order); i++) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(order, i));
    if (base == reinterpret_cast<PyTypeObject*>(THPVariableClass)) return true;
    if (PyDict_GetItemWithError(cpython::own_dict(base), name.get()) == nullptr) continue;
    Ref module = Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(base), "__module__"));
    const char* text = module && PyUnicode_Check(module.get()) ? PyUnicode_AsUTF8(module.get()) : nullptr;
    PyErr_Clear();
    return text != nullptr && strncmp(text, "torch.", 6) == 0;
  }
  return true;
}

}  // namespace

// A fact about a tensor's storage is read. Its storage offset follows from the offsets of the pre-existing tensors in
// that storage, each of which is guarded. Nothing else is known of such a storage.
static void use_memory_of(Tracer& t, Borrowed tensor, const std::string& name) {
  const bool is_offset = name.ends_with("storage_offset");
  for (const auto& [lifted, source] : t.lifter.tensors()) {
    if (storage_of(lifted) != storage_of(tensor)) continue;
    if (!is_offset) stop(report::Reason::tensor_attribute, name);
    Borrowed original = t.lifter.known(lifted)->original;
    lift::TensorSpec spec = lift::describe_tensor(original);
    spec.offset = fake::unpack(original.get()).storage_offset();
    lift::Guard guard{lift::GuardKind::kTensor};
    guard.tensor = std::make_shared<const lift::TensorSpec>(std::move(spec));
    t.tree->guard(source, std::move(guard));
  }
}

void check_tensor_method(Tracer& t, Borrowed callable, const std::string& name, PyObject* const* arguments,
                         size_t count) {
  const std::string_view method = std::string_view(name).substr(name.rfind('.') + 1);
  if (is_hook_method(method)) stop(report::Reason::hook, name);  // it would be attached to the autograd graph of a fake
  const bool memory = shows_memory(method);
  if (method == "storage_offset" || is_shared_fact(method)) {
    Borrowed of = PyCFunction_Check(callable.get()) ? PyCFunction_GET_SELF(callable.get()) : nullptr;
    if (!of || !is_tensor(of)) of = count > 0 ? arguments[0] : nullptr;
    if (of && is_tensor(of)) use_memory_of(t, of, name);
  }
  if (!memory && !is_unguarded_tensor_attribute(method)) return;
  Borrowed self = PyCFunction_Check(callable.get()) ? PyCFunction_GET_SELF(callable.get()) : nullptr;
  if (!self || !is_tensor(self)) self = count > 0 ? arguments[0] : nullptr;
  if (self && is_tensor(self) && (memory || t.lifter.known(self) != nullptr))
    stop(report::Reason::tensor_attribute, name);
}

Ref get_from_tensor(Tracer& t, Borrowed tensor, Borrowed name) {
  lift::Known* known = t.lifter.known(tensor);
  if (t.torch_functions->is_overridden(tensor) && is_torchs_getter(_PyType_Lookup(tensor.type(), name.get())) &&
      has_torchs_attribute(tensor.type(), name)) {
    // Torch dispatches to the class's __torch_function__, also for .grad and .grad_fn.
    (void)t.lifter.classes->attribute(tensor.type(), name);
    return t.torch_functions->run_overridden("the attribute " + text_of(name) + " of a tensor",
                                             [&] { return PyObject_GetAttr(tensor.get(), name.get()); });
  }
  const bool preexisting = known != nullptr && known->source != nullptr;
  if (preexisting && (equals(name, "grad_fn") || equals(name, "grad")))
    t.function_modes->forbid("the gradient of a tensor");
  // The tensor guard includes is_leaf.
  if (preexisting && equals(name, "grad_fn") && fake::unpack(tensor.get()).is_leaf()) return Ref::share(Py_None);
  if (shows_memory(text_of(name)) || (preexisting && is_unguarded_tensor_attribute(text_of(name))))
    stop(report::Reason::tensor_attribute, text_of(name));
  if (!preexisting && is_shared_fact(text_of(name))) use_memory_of(t, tensor, text_of(name));
  if (!preexisting && equals(name, "grad") && fake::is_fake(fake::unpack(tensor.get())) &&
      !fake::unpack(tensor.get()).is_leaf() && !fake::unpack(tensor.get()).retains_grad())
    stop(report::Reason::tensor_attribute, "grad of a tensor that is not a leaf");
  if (!preexisting && (equals(name, "requires_grad") || equals(name, "is_leaf") || equals(name, "grad")))
    t.gradient_questions++;
  // A fake's autograd graph is not the one that the real tensor will have, but a fake is a leaf where the real tensor
  // is one.
  if (!preexisting && equals(name, "grad_fn") && !t.function_modes->is_active() &&
      fake::is_fake(fake::unpack(tensor.get())) && fake::unpack(tensor.get()).is_leaf()) {
    t.gradient_questions++;
    return Ref::share(Py_None);
  }
  if (equals(name, "grad_fn") || equals(name, "_backward_hooks")) stop(report::Reason::tensor_attribute, text_of(name));
  if (preexisting && equals(name, "grad")) {
    if (std::optional<Ref> written = t.lifter.fields->written(tensor, name)) return std::move(*written);
    lift::Source* source = t.tree->child(known->source, lift::Access::kGrad);
    Ref owner;
    Borrowed grad = lift::follow(*source, known->original.get(), &owner);
    // Torch warns about this read, in each call.
    if ((!grad || grad.get() == Py_None) && !fake::unpack(tensor.get()).is_leaf())
      stop(report::Reason::tensor_attribute, "grad of a tensor that is not a leaf");
    return t.lifter.lift(grad ? grad : Borrowed(Py_None), source);
  }
  PyTypeObject* type = tensor.type();
  const bool is_torchs = has_torchs_attribute(type, name);
  Borrowed attribute = t.lifter.classes->attribute(type, name);
  if (type != reinterpret_cast<PyTypeObject*>(THPVariableClass)) {
    for (const char* hook : {"__getattr__", "__getattribute__"}) {
      Borrowed found = t.lifter.classes->attribute(type, checked(PyUnicode_InternFromString(hook)));
      if (found && PyFunction_Check(found.get()) && (!attribute || strcmp(hook, "__getattribute__") == 0))
        stop(report::Reason::native_call, std::string("a tensor class with ") + hook);
    }
  }
  if (!attribute || !comes_first(t, attribute, type, name)) {  // instance attributes take precedence
    if (preexisting) {
      if (lift::Shadow* attributes = t.lifter.namespaces->attributes(tensor)) {
        if (Ref value = t.lifter.containers->dict_item(*attributes, name)) return value;
      }
      if (!attribute) no_attribute(tensor, name);
    } else if (PyObject** dict = _PyObject_GetDictPtr(tensor.get()); dict != nullptr && *dict != nullptr) {
      if (PyObject* value = PyDict_GetItemWithError(*dict, name.get())) return Ref::share(value);
      if (PyErr_Occurred()) throw PyError();
    }
  }
  if (attribute && PyFunction_Check(attribute.get())) {  // a Python method
    return checked(PyMethod_New(t.lifter.lift(attribute, t.lifter.constant(attribute)).get(), tensor.get()));
  }
  // What a user's subclass adds is read like any other attribute: a property, a class method, an int.
  if (attribute && (!is_torchs || !is_native_descriptor(attribute)))
    return bind_descriptor(t, attribute, tensor, type, t.lifter.classes->attribute_source(type, name));
  const TorchRuns runs(t);
  Ref value = Ref::steal(PyObject_GetAttr(tensor.get(), name.get()));
  if (!value && t.function_modes->is_unwinding()) throw PyError();
  if (!value && !PyErr_ExceptionMatches(PyExc_AttributeError)) {
    if (is_interrupt(t)) stop_for_interrupt(t, text_of(name));
    PyErr_Clear();
    stop(report::Reason::torch_call, "the attribute " + text_of(name) + " of a tensor");
  }
  return checked(std::move(value));
}

}  // namespace alternator::trace
