// Attributes of tensors: what the guards cover, what a fake knows, what is a class's own.
#include "trace/core/tracer.h"

#include "cpython/objects.h"
#include "fake/python_tensor.h"
#include "lift/sources/tensor_spec.h"
#include "trace/calls/natives.h"
#include "trace/core/interrupts.h"
#include "trace/torch/tensor_attributes.h"

namespace alternator::trace {

namespace {

bool is_tensor(Borrowed object) { return graph::is_tensor(object); }
bool equals(Borrowed name, const char* text) { return PyUnicode_CompareWithASCIIString(name.get(), text) == 0; }

// What the tensor match does not cover.
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

// What shows the memory of a tensor, which a fake has none of: storages and addresses would be those of the fake.
bool shows_memory(std::string_view name) {
  for (const char* text : {"untyped_storage", "storage", "_typed_storage", "_cdata", "is_set_to", "_use_count"}) {
    if (name == text) return true;
  }
  return false;
}

// What a tensor has in common with all that lie in the same memory: of one of the trace's own it is known as long as no
// outside tensor lies there.
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

// Whether torch's own classes have an attribute under this name, and the tensor's class is one of them.
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

// A fact about the memory of a tensor is read. Where a tensor begins in it follows from where the outside ones do that
// lie there: each of them is guarded. Anything else is not known of such memory.
void Tracer::use_memory_of(Borrowed tensor, const std::string& name) {
  const bool is_offset = name.ends_with("storage_offset");
  for (const auto& [lifted, source] : lifter.tensors()) {
    if (storage_of(lifted) != storage_of(tensor)) continue;
    if (!is_offset) stop(report::Reason::tensor_attribute, name);
    Borrowed original = lifter.known(lifted)->original;
    lift::TensorSpec spec = lift::describe_tensor(original);
    spec.offset = fake::unpack(original.get()).storage_offset();
    lift::Guard guard{lift::GuardKind::kTensor};
    guard.tensor = std::make_shared<const lift::TensorSpec>(std::move(spec));
    tree->guard(source, std::move(guard));
  }
}

void Tracer::check_tensor_method(Borrowed callable, const std::string& name, PyObject* const* arguments, size_t count) {
  const std::string_view method = std::string_view(name).substr(name.rfind('.') + 1);
  if (is_hook_method(method)) stop(report::Reason::hook, name);  // it would hang on the history of a fake
  const bool memory = shows_memory(method);
  if (method == "storage_offset" || is_shared_fact(method)) {
    Borrowed of = PyCFunction_Check(callable.get()) ? PyCFunction_GET_SELF(callable.get()) : nullptr;
    if (!of || !is_tensor(of)) of = count > 0 ? arguments[0] : nullptr;
    if (of && is_tensor(of)) use_memory_of(of, name);
  }
  if (!memory && !is_unguarded_tensor_attribute(method)) return;
  Borrowed self = PyCFunction_Check(callable.get()) ? PyCFunction_GET_SELF(callable.get()) : nullptr;
  if (!self || !is_tensor(self)) self = count > 0 ? arguments[0] : nullptr;
  if (self && is_tensor(self) && (memory || lifter.known(self) != nullptr))
    stop(report::Reason::tensor_attribute, name);
}

Ref Tracer::get_from_tensor(Borrowed tensor, Borrowed name) {
  lift::Known* known = lifter.known(tensor);
  if (is_overridden(tensor) && is_torchs_getter(_PyType_Lookup(tensor.type(), name.get())) &&
      has_torchs_attribute(tensor.type(), name)) {
    // Torch asks the class of the tensor, also about its gradient and its history.
    (void)lifter.type_attribute(tensor.type(), name);
    return run_overridden("the attribute " + text_of(name) + " of a tensor",
                          [&] { return PyObject_GetAttr(tensor.get(), name.get()); });
  }
  const bool outside = known != nullptr && known->source != nullptr;
  if (outside && (equals(name, "grad_fn") || equals(name, "grad"))) forbid_under_modes("the gradient of a tensor");
  // Being a leaf is a part of every tensor's guard.
  if (outside && equals(name, "grad_fn") && fake::unpack(tensor.get()).is_leaf()) return Ref::share(Py_None);
  if (shows_memory(text_of(name)) || (outside && is_unguarded_tensor_attribute(text_of(name))))
    stop(report::Reason::tensor_attribute, text_of(name));
  if (!outside && is_shared_fact(text_of(name))) use_memory_of(tensor, text_of(name));
  if (!outside && equals(name, "grad") && fake::is_fake(fake::unpack(tensor.get())) &&
      !fake::unpack(tensor.get()).is_leaf() && !fake::unpack(tensor.get()).retains_grad())
    stop(report::Reason::tensor_attribute, "grad of no leaf");
  if (!outside && (equals(name, "requires_grad") || equals(name, "is_leaf") || equals(name, "grad")))
    gradient_questions++;
  // The history of a fake is not the one that the real tensor will have, but it has none where that one has none.
  if (!outside && equals(name, "grad_fn") && !is_under_modes() && fake::is_fake(fake::unpack(tensor.get())) &&
      fake::unpack(tensor.get()).is_leaf()) {
    gradient_questions++;
    return Ref::share(Py_None);
  }
  if (equals(name, "grad_fn") || equals(name, "_backward_hooks")) stop(report::Reason::tensor_attribute, text_of(name));
  if (outside && equals(name, "grad")) {
    if (std::optional<Ref> written = lifter.written_field(tensor, name)) return std::move(*written);
    lift::Source* source = tree->child(known->source, lift::Access::kGrad);
    Ref owner;
    Borrowed grad = lift::follow(*source, known->original.get(), &owner);
    // Of this question torch warns, in each call.
    if ((!grad || grad.get() == Py_None) && !fake::unpack(tensor.get()).is_leaf())
      stop(report::Reason::tensor_attribute, "grad of no leaf");
    return lifter.lift(grad ? grad : Borrowed(Py_None), source);
  }
  PyTypeObject* type = tensor.type();
  const bool torchs_own = has_torchs_attribute(type, name);
  Borrowed attribute = lifter.type_attribute(type, name);
  if (type != reinterpret_cast<PyTypeObject*>(THPVariableClass)) {
    for (const char* hook : {"__getattr__", "__getattribute__"}) {
      Borrowed found = lifter.type_attribute(type, checked(PyUnicode_InternFromString(hook)));
      if (found && PyFunction_Check(found.get()) && (!attribute || strcmp(hook, "__getattribute__") == 0))
        stop(report::Reason::native_call, std::string("a tensor class with ") + hook);
    }
  }
  if (!attribute || !comes_first(attribute, type, name)) {  // what the instance has comes first
    if (outside) {
      if (lift::Shadow* attributes = lifter.attributes(tensor)) {
        if (Ref value = lifter.dict_item(*attributes, name)) return value;
      }
      if (!attribute) no_attribute(tensor, name);
    } else if (PyObject** dict = _PyObject_GetDictPtr(tensor.get()); dict != nullptr && *dict != nullptr) {
      if (PyObject* value = PyDict_GetItemWithError(*dict, name.get())) return Ref::share(value);
      if (PyErr_Occurred()) throw PyError();
    }
  }
  if (attribute && PyFunction_Check(attribute.get())) {  // a method that is written in Python
    return checked(PyMethod_New(lifter.lift(attribute, lifter.constant(attribute)).get(), tensor.get()));
  }
  // What a class of the user's adds is read like any other: a property, a class method, a number.
  if (attribute && (!torchs_own || !is_native_descriptor(attribute)))
    return bind_descriptor(attribute, tensor, type, lifter.attribute_source(type, name));
  const TorchRuns runs(*this);
  Ref value = Ref::steal(PyObject_GetAttr(tensor.get(), name.get()));
  if (!value && is_unwinding()) throw PyError();
  if (!value && !PyErr_ExceptionMatches(PyExc_AttributeError)) {
    if (is_interrupt(*this)) stop_for_interrupt(*this, text_of(name));
    PyErr_Clear();
    stop(report::Reason::torch_call, "the attribute " + text_of(name) + " of a tensor");
  }
  return checked(std::move(value));
}

}  // namespace alternator::trace
