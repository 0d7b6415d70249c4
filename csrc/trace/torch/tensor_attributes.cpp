// Tensor attributes: those that guards cover, those that a fake knows, those that a subclass defines.
#include "trace/core/tracer.h"
#include "trace/opcodes/attributes.h"
#include "trace/torch/torch_function_methods.h"
#include "trace/torch/torch_function_modes.h"
#include "trace/torch/torch_runs.h"

#include "cpython/objects.h"
#include "fake/python_tensor.h"
#include "graph/record/torch_types.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/fields.h"
#include "lift/lifting/namespaces.h"
#include "lift/lifting/symbolic_inputs.h"
#include "lift/sources/tensor_spec.h"
#include "py/names.h"
#include "trace/calls/natives.h"
#include "trace/core/interrupts.h"
#include "trace/torch/tensor_attributes.h"

namespace alternator::trace {

namespace {

bool is_tensor(Borrowed object) { return graph::is_tensor(object); }

c10::StorageImpl* storage_of(Borrowed tensor) {
  const c10::TensorImpl* impl = fake::unpack(tensor.get()).unsafeGetTensorImpl();
  return impl->has_storage() ? impl->unsafe_storage().unsafeGetStorageImpl() : nullptr;
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
    return text != nullptr && graph::is_of_torch(text);
  }
  return true;
}

}  // namespace

static bool has_symbolic_offset(Tracer& t, Borrowed input) {
  const std::optional<uint32_t> id = t.recorder.known_tensor(input);
  if (!id) return false;
  const graph::Program& program = t.recorder.program();
  const graph::TensorRecord& record = program.tensors[*id];
  return record.origin == graph::Origin::Input && program.declared[record.index].geometry.offset != nullptr;
}

// A fact about a tensor's storage is read. Its storage offset follows from the offsets of the pre-existing tensors in
// that storage, each of which is guarded. Nothing else is known of such a storage.
static void use_memory_of(Tracer& t, Borrowed tensor, bool is_offset, const std::string& name) {
  for (const auto& [lifted, source] : t.lifter.tensors()) {
    if (storage_of(lifted) != storage_of(tensor)) continue;
    if (!is_offset) stop(report::Reason::tensor_attribute, name);
    if (has_symbolic_offset(t, lifted)) continue;
    Borrowed original = t.lifter.known(lifted)->original;
    lift::TensorSpec spec = lift::describe_tensor(original);
    lift::keep_free_sizes(*source, &spec);
    spec.offset = fake::unpack(original.get()).storage_offset();
    lift::Guard guard{lift::GuardKind::kTensor};
    guard.tensor = std::make_shared<const lift::TensorSpec>(std::move(spec));
    t.tree->guard(source, std::move(guard));
  }
}

void check_tensor_method(Tracer& t, const Call& call, MemberFlags method, const std::string& name) {
  // It would be attached to the autograd graph of a fake.
  if ((method & TensorMember::kHook) != 0) stop(report::Reason::hook, name);
  constexpr MemberFlags kOfMemory = TensorMember::kOffset | TensorMember::kSharedFact;
  if ((method & (kOfMemory | TensorMember::kShowsMemory | TensorMember::kUnguarded)) == 0) return;
  Borrowed self = PyCFunction_Check(call.callable.get()) ? PyCFunction_GET_SELF(call.callable.get()) : nullptr;
  if (!self || !is_tensor(self)) self = call.positional > 0 ? call.arguments[0] : nullptr;
  if (!self || !is_tensor(self)) return;
  if ((method & kOfMemory) != 0) use_memory_of(t, self, (method & TensorMember::kOffset) != 0, name);
  if ((method & TensorMember::kShowsMemory) != 0 ||
      ((method & TensorMember::kUnguarded) != 0 && t.lifter.known(self) != nullptr))
    stop(report::Reason::tensor_attribute, name);
}

// .grad of a pre-existing tensor: a field that the program may have written.
static Ref get_grad(Tracer& t, Borrowed tensor, Borrowed name, const lift::Known& known) {
  if (std::optional<Ref> written = t.lifter.fields->written(tensor, name)) return std::move(*written);
  lift::Source* source = t.tree->child(known.source, lift::Access::kGrad);
  Ref owner;
  Borrowed grad = lift::follow(*source, known.original.get(), &owner);
  // Torch warns about this read, in each call.
  if ((!grad || grad.get() == Py_None) && !fake::unpack(tensor.get()).is_leaf())
    stop(report::Reason::tensor_attribute, "grad of a tensor that is not a leaf");
  return t.lifter.lift(grad ? grad : Borrowed(Py_None), source);
}

// Attributes that are part of what the tracer knows of a tensor. Null: it is read like any other.
static Ref get_special(Tracer& t, Borrowed tensor, Borrowed name, const lift::Known* known) {
  const MemberFlags member = member_flags(text_of(name));
  if (member == 0) return {};
  const auto is = [&](MemberFlags flags) { return (member & flags) != 0; };
  const at::Tensor& value = fake::unpack(tensor.get());
  const bool preexisting = known != nullptr;
  if (preexisting && is(TensorMember::kGradFn | TensorMember::kGrad))
    t.function_modes->forbid("the gradient of a tensor");
  // The tensor guard includes is_leaf.
  if (preexisting && is(TensorMember::kGradFn) && value.is_leaf()) return Ref::share(Py_None);
  if (is(TensorMember::kShowsMemory) || (preexisting && is(TensorMember::kUnguarded)))
    stop(report::Reason::tensor_attribute, text_of(name));
  if (!preexisting && is(TensorMember::kSharedFact)) use_memory_of(t, tensor, false, text_of(name));
  if (!preexisting && is(TensorMember::kGrad) && fake::is_fake(value) && !value.is_leaf() && !value.retains_grad())
    stop(report::Reason::tensor_attribute, "grad of a tensor that is not a leaf");
  if (!preexisting && is(TensorMember::kAutogradFact)) t.autograd_queries++;
  // A fake's autograd graph is not the one that the real tensor will have, but a fake is a leaf where the real tensor
  // is one.
  if (!preexisting && is(TensorMember::kGradFn) && !t.function_modes->is_active() && fake::is_fake(value) &&
      value.is_leaf()) {
    t.autograd_queries++;
    return Ref::share(Py_None);
  }
  if (is(TensorMember::kOfFakesGraph)) stop(report::Reason::tensor_attribute, text_of(name));
  return preexisting && is(TensorMember::kGrad) ? get_grad(t, tensor, name, *known) : Ref();
}

// An attribute of the instance. Null: there is none.
static Ref get_from_instance(Tracer& t, Borrowed tensor, Borrowed name, bool preexisting) {
  if (preexisting) {
    lift::Shadow* attributes = t.lifter.namespaces->attributes(tensor);
    return attributes != nullptr ? t.lifter.containers->dict_item(*attributes, name) : Ref();
  }
  PyObject** dict = _PyObject_GetDictPtr(tensor.get());
  if (dict == nullptr || *dict == nullptr) return {};
  PyObject* value = PyDict_GetItemWithError(*dict, name.get());
  if (value == nullptr && PyErr_Occurred()) throw PyError();
  return Ref::share(value);
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
  if (Ref value = get_special(t, tensor, name, preexisting ? known : nullptr)) return value;
  PyTypeObject* type = tensor.type();
  const bool is_torchs = has_torchs_attribute(type, name);
  Borrowed attribute = t.lifter.classes->attribute(type, name);
  if (type != reinterpret_cast<PyTypeObject*>(THPVariableClass)) {
    for (PyObject* hook : {names::__getattr__, names::__getattribute__}) {
      Borrowed found = t.lifter.classes->attribute(type, hook);
      if (found && PyFunction_Check(found.get()) && (!attribute || hook == names::__getattribute__))
        stop(report::Reason::native_call, "a tensor class with " + text_of(hook));
    }
  }
  if (!attribute || !comes_first(t, attribute, type, name)) {  // instance attributes take precedence
    if (Ref value = get_from_instance(t, tensor, name, preexisting)) return value;
    if (preexisting && !attribute) no_attribute(tensor, name);
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
