#include "trace/opcodes/special_owners.h"
#include "trace/calls/instance_tests.h"
#include "trace/calls/python_functions.h"
#include "trace/opcodes/attributes.h"
#include "trace/soundness/observable_failures.h"

#include "cpython/objects.h"
#include "cpython/version.h"
#include "graph/record/torch_types.h"
#include "graph/record/torch_warnings.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/fields.h"
#include "lift/lifting/namespaces.h"
#include "py/names.h"

namespace alternator::trace {

// An attribute that the class of a module of torch creates on access: torch.ops.
static Ref get_computed(Tracer& t, Borrowed module, Borrowed name) {
  Ref owner = Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(module.type()), "__module__"));
  PyErr_Clear();
  const char* text = owner && PyUnicode_Check(owner.get()) ? PyUnicode_AsUTF8(owner.get()) : nullptr;
  if (text == nullptr || !graph::is_of_torch(text))
    stop(report::Reason::native_call, "an attribute of a module with a class of its own");
  Ref value = [&] {
    const Paused paused(t);
    return checked(PyObject_GetAttr(module.get(), name.get()));
  }();
  // Created objects are kept; a scalar or a string may be another one next time.
  if (lift::is_plain(value.get())) stop(report::Reason::native_call, "a value that a module's class computes");
  if (PyMethod_Check(value.get()) && Borrowed(PyMethod_GET_SELF(value.get())) == module) {
    // A method of the module's class: bound again on each access, so that no guard may be about this bound method.
    Borrowed function = PyMethod_GET_FUNCTION(value.get());
    return checked(PyMethod_New(t.lifter.lift(function, t.lifter.constant(function)).get(), module.get()));
  }
  return t.lifter.lift(value, t.lifter.constant(value));
}

Ref get_from_module(Tracer& t, Borrowed module, Borrowed name) {
  lift::Shadow& name_space = t.lifter.namespaces->of_globals(PyModule_GetDict(module.get()));
  if (equals(name, "__dict__")) return Ref(name_space.copy);
  if (!graph::is_plain_module_class(module.type())) {  // torch.backends.cudnn.enabled
    PyObject* attribute = _PyType_Lookup(module.type(), name.get());
    if (attribute != nullptr && Py_TYPE(attribute)->tp_descr_set != nullptr &&
        (Py_TYPE(attribute)->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0)
      return bind_descriptor(t, attribute, module, module.type(), t.lifter.constant(attribute));
    Borrowed property = t.lifter.classes->attribute(module.type(), name);
    if (property && Py_IS_TYPE(property.get(), &PyProperty_Type))
      return bind_descriptor(t, property, module, module.type(),
                             t.lifter.classes->attribute_source(module.type(), name));
  }
  if (Ref value = t.lifter.containers->dict_item(name_space, name)) return value;
  Ref fallback = t.lifter.containers->dict_item(name_space, names::__getattr__);
  if (fallback && PyFunction_Check(fallback.get())) {
    PyObject* arguments[] = {nullptr, name.get()};
    return call_function(t, {fallback, arguments + 1, 1, {}});
  }
  if (PyObject* attribute = _PyType_Lookup(module.type(), name.get());
      attribute != nullptr && graph::is_plain_module_class(module.type())) {
    return checked(PyObject_GetAttr(module.get(), name.get()));
  }
  if (!graph::is_plain_module_class(module.type())) return get_computed(t, module, name);
  PyErr_Format(PyExc_AttributeError, "module '%s' has no attribute '%U'", PyModule_GetName(module.get()), name.get());
  throw PyError();
}

// type.__getattribute__: the metaclass's data descriptors, the class and its bases, the metaclass.
Ref get_from_type(Tracer& t, PyTypeObject* type, Borrowed name) {
  Borrowed cls = reinterpret_cast<PyObject*>(type);
  PyTypeObject* metaclass = cls.type();
  if (metaclass != &PyType_Type) {
    // A metaclass that defines __getattr__: it is called after the regular rules.
    Ref getattribute_name = checked(PyUnicode_InternFromString("__getattribute__"));
    Borrowed getattribute = t.lifter.classes->attribute(metaclass, getattribute_name);
    if (PyFunction_Check(getattribute.get())) stop(report::Reason::native_call, "a metaclass with __getattribute__");
  }
  const Ref meta_attribute = Ref::share(t.lifter.classes->attribute(metaclass, name));
  if (meta_attribute && comes_first(t, meta_attribute, metaclass, name)) {
    if (metaclass == &PyType_Type || Py_IS_TYPE(meta_attribute.get(), &PyGetSetDescr_Type) ||
        Py_IS_TYPE(meta_attribute.get(), &PyMemberDescr_Type)) {
      if (equals(name, "__dict__")) return checked(PyDictProxy_New(t.lifter.classes->dict(type).get()));
      Ref value = checked(PyObject_GetAttr(cls.get(), name.get()));  // __name__, __mro__, ...
      const bool fixed = (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0;
      if (t.lifter.made_here(cls)) return value;
      if (fixed && (lift::is_plain(value.get()) || PyType_Check(value.get()))) return value;
      return t.lifter.lift(value, t.tree->child(t.lifter.constant(cls), lift::Access::kField, name));
    }
    return bind_descriptor(t, meta_attribute, cls, metaclass, t.lifter.classes->attribute_source(metaclass, name));
  }
  if (Borrowed attribute = t.lifter.classes->attribute(type, name)) {
    return bind_descriptor(t, attribute, {}, type, t.lifter.classes->attribute_source(type, name),
                           is_written_by_program(t, type, name));
  }
  if (meta_attribute)
    return bind_descriptor(t, meta_attribute, cls, metaclass, t.lifter.classes->attribute_source(metaclass, name));
  Ref getattr_name = checked(PyUnicode_InternFromString("__getattr__"));
  if (Borrowed fallback = t.lifter.classes->attribute(metaclass, getattr_name);
      fallback && PyFunction_Check(fallback.get())) {
    PyObject* arguments[] = {nullptr, cls.get(), name.get()};
    return call_function(t, {t.lifter.lift(fallback, t.lifter.constant(fallback)), arguments + 1, 2, {}});
  }
  no_attribute(cls, name);
}

Ref get_from_function(Tracer& t, Borrowed function, Borrowed name) {
  if (t.lifter.made_here(function)) return checked(PyObject_GetAttr(function.get(), name.get()));
  lift::Known* known = t.lifter.known(function);
  if (known == nullptr) {
    (void)t.lifter.lift(function, t.lifter.constant(function));
    known = t.lifter.known(function);
  }
  if (equals(name, "__dict__")) {
    if (lift::Shadow* attributes = t.lifter.namespaces->attributes(function)) return Ref(attributes->copy);
  }
  if (_PyType_Lookup(function.type(), name.get()) == nullptr) {
    if (lift::Shadow* attributes = t.lifter.namespaces->attributes(function)) {
      if (Ref value = t.lifter.containers->dict_item(*attributes, name)) return value;
    }
    no_attribute(function, name);
  }
  if (is_written_field(name)) {
    Ref value = t.lifter.fields->load(function, name, _PyType_Lookup(function.type(), name.get()));
    if (!value) no_attribute(function, name);
    return value;
  }
  Ref value = checked(PyObject_GetAttr(function.get(), name.get()));
  if (Py_IS_TYPE(value.get(), &_PyMethodWrapper_Type) || PyType_Check(value.get())) return value;
  if (equals(name, "__globals__")) return Ref(t.lifter.namespaces->of_globals(value).copy);
  return t.lifter.lift(value, t.tree->child(t.lifter.known(function)->source, lift::Access::kField, name));
}

// The classes after __thisclass__ in the instance's MRO; for each that lacks the name, that is guarded.
Ref get_from_super(Tracer& t, Borrowed super, Borrowed name) {
  auto field = [&](const char* text) { return checked(PyObject_GetAttrString(super.get(), text)); };
  if (equals(name, "__class__")) return Ref::share(reinterpret_cast<PyObject*>(super.type()));
  Ref after = field("__thisclass__"), start = field("__self_class__"), self = field("__self__");
  if (!PyType_Check(start.get())) return checked(PyObject_GetAttr(super.get(), name.get()));
  PyObject* order = start.as<PyTypeObject>()->tp_mro;
  if (order != nullptr) guard_order_of_bases(t, start);  // else the class is being created: its mro() runs
  bool found_class = false;
  for (Py_ssize_t i = 0; order != nullptr && i < PyTuple_GET_SIZE(order); i++) {
    Borrowed cls = PyTuple_GET_ITEM(order, i);
    if (!found_class) {
      found_class = cls == Borrowed(after);
      continue;
    }
    auto* type = cls.as<PyTypeObject>();
    const bool unbound_class = Borrowed(self) == Borrowed(start);
    if (const lift::Variable* place = t.lifter.classes->class_variable(type, name)) {
      if (!place->value) continue;
      return bind_descriptor(t, place->value, unbound_class ? Borrowed() : Borrowed(self), start.as<PyTypeObject>(),
                             t.lifter.constant(place->value), true);
    }
    Borrowed attribute = PyDict_GetItemWithError(cpython::own_dict(type), name.get());
    const bool guarded = (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) == 0 && !t.lifter.made_here(cls);
    if (guarded) {
      lift::Source* own = t.tree->child(t.lifter.constant(cls), lift::Access::kDict);
      if (attribute) {
        t.tree->guard(t.tree->child(own, lift::Access::kItem, name), {lift::GuardKind::kIs, Ref::share(attribute)});
      } else {
        t.tree->guard(own, {lift::GuardKind::kLacksKey, Ref::share(name)});
      }
    }
    if (!attribute) continue;
    return bind_descriptor(t, attribute, unbound_class ? Borrowed() : Borrowed(self), start.as<PyTypeObject>(),
                           t.lifter.made_here(cls) ? nullptr : t.lifter.constant(attribute));
  }
  return checked(PyObject_GetAttr(super.get(), name.get()));
}

}  // namespace alternator::trace
