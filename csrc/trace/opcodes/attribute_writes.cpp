// Attribute writes and deletes.
#include "trace/opcodes/attribute_writes.h"
#include "trace/calls/python_functions.h"
#include "trace/opcodes/attributes.h"
#include "trace/opcodes/items.h"
#include "trace/soundness/finalizers.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/torch/torch_function_methods.h"
#include "trace/torch/torch_function_modes.h"
#include "trace/torch/torch_runs.h"

#include "cpython/objects.h"
#include "cpython/thread_locals.h"
#include "fake/python_tensor.h"
#include "graph/record/torch_warnings.h"
#include "lift/lifting/cells.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/fields.h"
#include "lift/lifting/layouts.h"
#include "lift/lifting/namespaces.h"
#include "lift/lifting/write_log.h"
#include "lift/sources/decimal_values.h"
#include "py/lasting.h"
#include "py/names.h"
#include "trace/calls/natives.h"
#include "trace/soundness/address_identity.h"
#include "trace/soundness/observable_failures.h"
#include "trace/torch/tensor_hooks.h"

namespace alternator::trace {

static void set_on_class(Tracer& t, PyTypeObject* type, Borrowed name, Borrowed value);  // null: delete
static void lift_descriptor(Tracer& t, PyTypeObject* type, Borrowed attribute, Borrowed name);

static bool is_tensor(Borrowed object) { return graph::is_tensor(object); }

bool set_member_of_container(lift::Lifter& lifter, Borrowed container, Borrowed name, Borrowed value) {
  const lift::Known* known = lifter.known(container);
  if (known == nullptr || known->shadow == nullptr) return false;
  Borrowed member = lifter.classes->attribute(container.type(), name);
  if (!member || !Py_IS_TYPE(member.get(), &PyMemberDescr_Type)) return false;
  if (value) lifter.escape(value);
  check_status(member.type()->tp_descr_set(member.get(), container.get(), value.get()));
  Ref now = Ref::steal(
      member.type()->tp_descr_get(member.get(), container.get(), reinterpret_cast<PyObject*>(container.type())));
  if (!now) PyErr_Clear();  // deleted
  lifter.fields->store(container, name, std::move(now));
  return true;
}

static bool is_config(PyTypeObject* type) {
  static constinit Lasting<Ref> lasting;
  const Ref& config = lasting.get([] { return graph::torch_name("torch.utils._config_module", "ConfigModule"); });
  return PyType_IsSubtype(type, config.as<PyTypeObject>()) != 0;
}

// A torch setting (torch._inductor.config): its module class stores it elsewhere. It is set after the graph has run;
// until then nothing reads it, since reading a value that a module's class computes is a break. False: the class does
// not override this.
static bool set_on_custom_module(Tracer& tracer, Borrowed module, Borrowed name, Borrowed value) {
  Ref hook_name = checked(PyUnicode_InternFromString(value ? "__setattr__" : "__delattr__"));
  if (_PyType_Lookup(module.type(), hook_name.get()) == _PyType_Lookup(&PyModule_Type, hook_name.get())) return false;
  const std::string what = text_of(name) + " of a module with a class of its own is set";
  Ref before;
  if (value && lift::is_plain(value.get()) && is_config(module.type())) {
    const Paused paused(tracer);
    before = Ref::steal(PyObject_GetAttr(module.get(), name.get()));
    PyErr_Clear();
  }
  if (!before || !lift::is_plain(before.get())) stop(report::Reason::native_call, what);
  tracer.lifter.note_constant(Natives::table().setattr);
  Ref given = checked(PyTuple_Pack(3, module.get(), name.get(), value.get()));
  tracer.lifter.write_log->add_effect({Ref::share(Natives::table().setattr), std::move(given), {}});
  return true;
}

static void set_natively(Borrowed owner, Borrowed name, Borrowed value) {
  check_status(PyObject_SetAttr(owner.get(), name.get(), value.get()));
}

static void set_on_tensor(Tracer& t, Borrowed owner, Borrowed name, Borrowed value) {
  PyTypeObject* type = owner.type();
  lift::Known* known = t.lifter.known(owner);
  const bool is_grad = equals(name, "grad");
  // An attribute that torch's classes do not define is the program's own, and in the tensor's dict.
  if (known != nullptr && known->source != nullptr && !t.lifter.classes->attribute(type, name) &&
      is_generic(_PyType_Lookup(type, checked(PyUnicode_InternFromString("__setattr__")).get()),
                 PyObject_GenericSetAttr)) {
    if (lift::Shadow* attributes = t.lifter.namespaces->attributes(owner)) {
      if (!value && !t.lifter.containers->dict_item(*attributes, name)) no_attribute(owner, name, true);
      return t.lifter.containers->dict_store(*attributes, name, value);
    }
  }
  if (known != nullptr && equals(name, "requires_grad") && value && PyBool_Check(value.get()) &&
      get_attribute(t, owner, name) == value &&
      get_attribute(t, owner, checked(PyUnicode_InternFromString("is_leaf"))).get() == Py_True) {
    return;  // it does not change
  }
  // Setting `.data` of a Tensor or Parameter itself is a node, as for a tensor that the trace has made.
  const bool is_data = equals(name, "data") && value && is_tensor(value) && !t.is_transformed() &&
                       !t.function_modes->is_active() &&
                       (type == graph::torch_types().tensor || type == graph::torch_types().parameter);
  if (known != nullptr && !is_data && (!is_grad || known->source == nullptr))
    stop(report::Reason::tensor_attribute, text_of(name) + " is set");
  if (t.torch_functions->is_overridden(owner) && is_torchs_getter(_PyType_Lookup(owner.type(), name.get())))
    stop(report::Reason::tensor_attribute, text_of(name) + " of a tensor with a __torch_function__ is set");
  const TorchRuns runs(t);
  if (known != nullptr && is_data) {
    if (PyObject_SetAttr(owner.get(), name.get(), value.get()) == 0) return;
    if (t.function_modes->is_unwinding()) throw PyError();
    PyErr_Clear();
    stop(report::Reason::torch_call, "data is set");
  }
  set_natively(owner, name, value);  // with eager's checks
  if (known != nullptr && is_grad) t.lifter.fields->store(owner, name, value ? Ref::share(value) : Ref::share(Py_None));
}

static void set_on_module(Tracer& t, Borrowed owner, Borrowed name, Borrowed value) {
  PyTypeObject* type = owner.type();
  const bool has_custom_class = !graph::is_plain_module_class(type);
  if (has_custom_class && set_on_custom_module(t, owner, name, value)) return;
  if (PyObject* attribute = has_custom_class ? _PyType_Lookup(type, name.get()) : nullptr;
      attribute != nullptr && Py_TYPE(attribute)->tp_descr_set != nullptr)
    return set_generic(t, owner, name, value);
  lift::Shadow& name_space = t.lifter.namespaces->of_globals(PyModule_GetDict(owner.get()));
  if (!value && !t.lifter.containers->dict_item(name_space, name)) no_attribute(owner, name, true);
  t.finalizers->check(t.lifter.namespaces->peek(PyModule_GetDict(owner.get()), name), nullptr);
  t.lifter.containers->dict_store(name_space, name, value);
}

// Objects without attributes in the trace: a property, a cell, a partial.
static void set_on_builtin(Tracer& t, Borrowed owner, Borrowed name, Borrowed value, Borrowed hook) {
  PyTypeObject* type = owner.type();
  if (const lift::Known* known = t.lifter.known(owner); known != nullptr && known->shadow == nullptr) {
    if (PyCell_Check(owner.get()) && equals(name, "cell_contents") && t.lifter.cells->is_preexisting(owner))
      return store_cell(t, owner, Ref::share(value));
    if (lift::is_decimal_context(owner.get()))
      return set_natively(owner, name, value);  // the copy; it is written back at the end
    stop(report::Reason::native_call, std::string("a field of a ") + type->tp_name + " is set");
  }
  // A private object: its own dict is private too; what its class defines is guarded.
  t.lifter.namespaces->open_attributes(owner);
  if (Borrowed attribute = t.lifter.classes->attribute(type, name)) {
    use_descriptor(t, attribute, type, name);
    lift_descriptor(t, type, attribute, name);
  }
  if (is_generic(hook, PyObject_GenericSetAttr) && set_member_of_container(t.lifter, owner, name, value)) return;
  set_natively(owner, name, value);
}

static void set_on_function(Tracer& t, Borrowed owner, Borrowed name, Borrowed value) {
  if (t.lifter.made_here(owner)) return set_natively(owner, name, value);
  if (_PyType_Lookup(owner.type(), name.get()) == nullptr) return set_generic(t, owner, name, value);
  // Only fields that calling the function does not read.
  if (!value || !is_written_field(name)) stop(report::Reason::native_call, "a field of a function is set");
  const bool is_name = !equals(name, "__doc__") && !equals(name, "__module__");
  if (is_name && !PyUnicode_CheckExact(value.get()))
    stop(report::Reason::native_call, "a name of a function is set to something other than a string");
  t.lifter.fields->store(owner, name, Ref::share(value));
}

void set_attribute(Tracer& t, Borrowed owner, Borrowed name, Borrowed value) {
  PyTypeObject* type = owner.type();
  // Native code reads what a field of its own is set to. The fields of a namespace are in a dict.
  const bool is_namespace = lift::layout_base(type) == lift::known_types().simple_namespace;
  if (value && !lift::has_plain_layout(type) && !is_namespace) t.backed->make_plain(value);
  if (value) t.lifter.escape(value);
  if (is_proxy_of_trace(t.lifter, owner))
    return set_attribute(t, Ref::share(PyWeakref_GetObject(owner.get())), name, value);
  if (PyType_Check(owner.get())) {
    if (!t.lifter.made_here(owner)) return set_on_class(t, owner.as<PyTypeObject>(), name, value);
    return set_natively(owner, name, value);
  }
  if (lift::is_array(owner.get())) stop(report::Reason::native_call, text_of(name) + " of an array is set");
  if (is_tensor(owner)) return set_on_tensor(t, owner, name, value);
  if (PyModule_Check(owner.get())) return set_on_module(t, owner, name, value);
  const lift::Known* known = t.lifter.known(owner);
  if (known != nullptr && known->opaque)
    stop(report::Reason::opaque_object, std::string(type->tp_name) + "." + text_of(name));
  Ref hook_name = checked(PyUnicode_InternFromString(value ? "__setattr__" : "__delattr__"));
  Borrowed hook = t.lifter.classes->attribute(type, hook_name);
  if (known == nullptr || !known->instance) return set_on_builtin(t, owner, name, value, hook);
  if (PyFunction_Check(owner.get())) return set_on_function(t, owner, name, value);
  if (hook && PyFunction_Check(hook.get())) {
    PyObject* arguments[] = {nullptr, owner.get(), name.get(), value.get()};
    (void)call_function(t, {t.lifter.lift(hook, t.lifter.constant(hook)), arguments + 1, value ? 3U : 2U, {}});
    return;
  }
  const bool is_local = hook && cpython::is_thread_local_slot(hook.get());
  if (hook && !is_generic(hook, PyObject_GenericSetAttr) && !(is_local && !equals(name, "__dict__")))
    stop(report::Reason::native_call, std::string(type->tp_name) + "." + text_of(hook_name));
  set_generic(t, owner, name, value);
}

// A descriptor of a Python class whose __set__ native code is about to call.
static void lift_descriptor(Tracer& t, PyTypeObject* type, Borrowed attribute, Borrowed name) {
  if (!attribute || attribute.type()->tp_descr_set == nullptr || t.lifter.made_here(attribute) ||
      t.lifter.classes->attribute_source(type, name) == nullptr || t.lifter.known(attribute) != nullptr ||
      (attribute.type()->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) {
    return;
  }
  t.lifter.classes->use_special_methods(attribute.type());
  if (Borrowed(t.lifter.lift(attribute, t.lifter.classes->attribute_source(type, name))) != attribute)
    stop(report::Reason::cannot_lift, "a descriptor that needs a private copy");
}

// A pre-existing class is not mutated: the program's writes are kept beside it, and every look-up of the tracer finds
// them there. Native code does its own look-ups, so what it may look up is refused: special methods, data descriptors.
static void set_on_class(Tracer& t, PyTypeObject* type, Borrowed name, Borrowed value) {
  Borrowed cls = reinterpret_cast<PyObject*>(type);
  PyTypeObject* metaclass = cls.type();
  Ref hook_name = checked(PyUnicode_InternFromString(value ? "__setattr__" : "__delattr__"));
  Borrowed hook = t.lifter.classes->attribute(metaclass, hook_name);
  if (hook && PyFunction_Check(hook.get())) {
    PyObject* arguments[] = {nullptr, cls.get(), name.get(), value.get()};
    (void)call_function(t, {t.lifter.lift(hook, t.lifter.constant(hook)), arguments + 1, value ? 3U : 2U, {}});
    return;
  }
  if (hook && hook.type() != &PyWrapperDescr_Type) stop(report::Reason::class_write, metaclass->tp_name);
  store_on_class(t, type, name, value);
}

void store_on_class(Tracer& t, PyTypeObject* type, Borrowed name, Borrowed value) {
  Borrowed cls = reinterpret_cast<PyObject*>(type);
  const std::string what = std::string(type->tp_name) + "." + text_of(name);
  auto refuse = [&](bool condition) {
    if (condition) stop(report::Reason::class_write, what);
  };
  if ((type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0 || t.lifter.made_here(cls)) {
    check_status(PyType_Type.tp_setattro(cls.get(), name.get(), value.get()));
    return;
  }
  const std::string text = text_of(name);
  refuse(!PyUnicode_CheckExact(name.get()) || (text.size() > 4 && text.starts_with("__") && text.ends_with("__")));
  refuse(PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(THPVariableClass)) != 0);
  Borrowed of_metaclass = t.lifter.classes->attribute(cls.type(), name);
  refuse(of_metaclass && of_metaclass.type()->tp_descr_set != nullptr);
  Borrowed before = _PyType_Lookup(type, name.get());
  refuse(before && before.type()->tp_descr_set != nullptr);
  refuse(value && value.type()->tp_descr_set != nullptr);
  const lift::Variable* place = t.lifter.classes->class_variable(type, name);
  bool writes = true;
  if (!value) {
    const bool has = PyDict_GetItemWithError(cpython::own_dict(type), name.get()) != nullptr;
    refuse(place != nullptr ? !place->value : !has);
    t.tree->guard(t.tree->child(t.lifter.constant(cls), lift::Access::kDict),
                  {has ? lift::GuardKind::kHasKey : lift::GuardKind::kLacksKey, Ref::share(name)});
    writes = has;  // set and deleted again in the call: nothing is left to do
  }
  // That it is no data descriptor is guarded too.
  if (place == nullptr && before)
    t.tree->guard(t.lifter.classes->attribute_source(type, name), {lift::GuardKind::kType, Ref::share(before.type())});
  if (place == nullptr && !before)
    t.tree->guard(t.lifter.classes->attribute_source(type, name), {lift::GuardKind::kAbsent});
  if (place == nullptr && before) t.finalizers->check(before, t.lifter.classes->attribute_source(type, name));
  t.lifter.classes->store(type, name, Ref::share(value), writes);
}

void set_generic(Tracer& t, Borrowed owner, Borrowed name, Borrowed value) {
  PyTypeObject* type = owner.type();
  Borrowed attribute = t.lifter.classes->attribute(type, name);
  if (attribute) use_descriptor(t, attribute, type, name);
  if (attribute && attribute.type()->tp_descr_set != nullptr) {
    if (Py_IS_TYPE(attribute.get(), &PyMemberDescr_Type)) {
      if (!value && !t.lifter.fields->load(owner, name, attribute)) {
        PyErr_SetObject(PyExc_AttributeError, name.get());
        throw PyError();
      }
      if (lift::Known* known = t.lifter.known(owner); known != nullptr && !t.lifter.fields->written(owner, name)) {
        Ref old = Ref::steal(
            attribute.type()->tp_descr_get(attribute.get(), known->original.get(), reinterpret_cast<PyObject*>(type)));
        if (!old) PyErr_Clear();
        t.finalizers->check(old, t.tree->child(known->source, lift::Access::kField, name));
      }
      return t.lifter.fields->store(owner, name, Ref::share(value));
    }
    if (Py_IS_TYPE(attribute.get(), &PyGetSetDescr_Type)) stop(report::Reason::native_call, text_of(name) + " is set");
    if (Py_IS_TYPE(attribute.get(), &PyProperty_Type)) {
      Ref setter = checked(PyObject_GetAttrString(attribute.get(), value ? "fset" : "fdel"));
      if (PyFunction_Check(setter.get())) {
        PyObject* arguments[] = {nullptr, owner.get(), value.get()};
        (void)call_function(t, {t.lifter.lift(setter, t.lifter.constant(setter)), arguments + 1, value ? 2U : 1U, {}});
        return;
      }
    } else {
      lift_descriptor(t, type, attribute, name);
    }
    check_status(attribute.type()->tp_descr_set(attribute.get(), owner.get(), value.get()));
    return;
  }
  lift::Shadow* attributes = t.lifter.namespaces->attributes(owner);
  if (attributes == nullptr) no_attribute(owner, name, true);
  if (!value && !t.lifter.containers->dict_item(*attributes, name)) no_attribute(owner, name, true);
  t.lifter.containers->dict_store(*attributes, name, value);
}

}  // namespace alternator::trace
