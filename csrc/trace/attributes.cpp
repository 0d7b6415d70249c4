// Attribute access: the language's rules, over private copies and guarded classes.
#include "trace/hooks.h"
#include "trace/tracer.h"

#include "cpython/attribute_error.h"
#include "cpython/objects.h"
#include "cpython/thread_locals.h"
#include "cpython/version.h"
#include "fake/python_tensor.h"
#include "graph/warnings.h"
#include "lift/decimals.h"
#include "py/import.h"
#include "py/lasting.h"
#include "py/names.h"
#include "trace/failures.h"
#include "trace/identity.h"
#include "trace/natives.h"
#include "trace/tensor_attributes.h"

#include <frameobject.h>

namespace alternator::trace {

namespace {

bool is_tensor(Borrowed object) { return graph::is_tensor(object); }
bool is_data_descriptor(Borrowed descriptor) {
  return descriptor.type()->tp_descr_get != nullptr && descriptor.type()->tp_descr_set != nullptr;
}
bool equals(Borrowed name, const char* text) { return PyUnicode_CompareWithASCIIString(name.get(), text) == 0; }
// Whether the error of setting or deleting what is not there says which one: from CPython 3.12 on.
bool names_written() {
  static constinit Lasting<bool> answer;
  return answer.get([] {
    PyObject* type = reinterpret_cast<PyObject*>(lift::known_types().simple_namespace);
    Ref probe = checked(PyObject_CallNoArgs(type));
    if (PyObject_DelAttrString(probe.get(), "probe") == 0) return false;
    Ref error = cpython::take_raised();
    Ref named = checked(PyObject_GetAttrString(error.get(), "name"));
    return named.get() != Py_None;
  });
}

// Fields of a function that a program may set.
bool is_written_field(Borrowed name) {
  return equals(name, "__name__") || equals(name, "__qualname__") || equals(name, "__doc__") ||
         equals(name, "__module__");
}

// A slot of a C type whose instances hold nothing of their own.
bool is_native_slot(Borrowed attribute) {
  return attribute && attribute.type() == &PyWrapperDescr_Type &&
         Natives::table().type(reinterpret_cast<PyDescrObject*>(attribute.get())->d_type);
}

bool is_cached_property(PyTypeObject* type) {
  static PyObject* const cached_property =
      checked(PyObject_GetAttrString(import_module("functools").get(), "cached_property")).release();
  return reinterpret_cast<PyObject*>(type) == cached_property;
}

}  // namespace

std::string text_of(Borrowed name) {
  const char* utf8 = PyUnicode_AsUTF8(name.get());
  if (utf8 == nullptr) PyErr_Clear();
  return utf8 != nullptr ? utf8 : "?";
}

void no_attribute(Borrowed owner, Borrowed name, bool writes) {
  const bool is_named = !writes || names_written();
  PyErr_Format(
      PyExc_AttributeError,
      PyType_Check(owner.get()) ? "type object '%.50s' has no attribute '%U'" : "'%.50s' object has no attribute '%U'",
      PyType_Check(owner.get()) ? owner.as<PyTypeObject>()->tp_name : owner.type()->tp_name, name.get());
  if (!is_named) throw PyError();
  Ref error = cpython::take_raised();
  // What "did you mean" looks at.
  if (PyObject_SetAttrString(error.get(), "name", name.get()) < 0) PyErr_Clear();
  if (PyObject_SetAttrString(error.get(), "obj", owner.get()) < 0) PyErr_Clear();
  cpython::set_raised(std::move(error));
  throw PyError();
}

// A weak proxy that the call has made, of something that lives. What one from outside stands for was never lifted.
static bool is_proxy_of_trace(const lift::Lifter& lifter, Borrowed object) {
  if (!PyWeakref_CheckProxy(object.get())) return false;
  if (lifter.known(object) != nullptr) stop(report::Reason::opaque_object, "a weak proxy from outside");
  return PyWeakref_GetObject(object.get()) != Py_None;
}

bool set_member_of_container(lift::Lifter& lifter, Borrowed container, Borrowed name, Borrowed value) {
  const lift::Known* known = lifter.known(container);
  if (known == nullptr || known->shadow == nullptr) return false;
  Borrowed member = lifter.type_attribute(container.type(), name);
  if (!member || !Py_IS_TYPE(member.get(), &PyMemberDescr_Type)) return false;
  if (value) lifter.escape(value);
  check_status(member.type()->tp_descr_set(member.get(), container.get(), value.get()));
  Ref now = Ref::steal(
      member.type()->tp_descr_get(member.get(), container.get(), reinterpret_cast<PyObject*>(container.type())));
  if (!now) PyErr_Clear();  // deleted
  lifter.store_field(container, name, std::move(now));
  return true;
}

// --- reading ----------------------------------------------------------------------------------------------

Ref Tracer::get_attribute(Borrowed owner, Borrowed name) try {
  PyTypeObject* type = owner.type();
  if (PyModule_Check(owner.get())) return get_from_module(owner, name);
  if (PyType_Check(owner.get())) return get_from_type(owner.as<PyTypeObject>(), name);
  if (type == &PySuper_Type) return get_from_super(owner, name);
  if (is_tensor(owner)) return get_from_tensor(owner, name);
  if (PyFunction_Check(owner.get())) return get_from_function(owner, name);
  if (PyFrame_Check(owner.get())) return get_from_frame(owner, name);
  if (lift::is_array(owner.get())) return get_from_array(owner, name);
  if (is_proxy_of_trace(lifter, owner))
    return get_attribute(Ref::share(PyWeakref_GetObject(owner.get())), name);
  // What a bound method does not have itself it answers for its function, the text included.
  if (type == &PyMethod_Type && (_PyType_Lookup(type, name.get()) == nullptr || equals(name, "__doc__")))
    return get_attribute(Ref::share(PyMethod_GET_FUNCTION(owner.get())), name);
  if (is_identity(owner) && equals(name, "__class__")) return Ref::share(&PyLong_Type);
  if (fake::is_symbol(owner)) {
    if (equals(name, "__class__")) return Ref::share(fake::class_of_symbol(owner));
    stop(report::Reason::unknown_number, "the attribute " + text_of(name));
  }
  lift::Known* known = lifter.known(owner);
  if (is_drawn(owner)) stop(report::Reason::random_number, "an attribute");
  if (is_hook_handle(owner)) stop(report::Reason::hook, "its handle is used");
  if (known != nullptr && known->opaque) {
    if (Ref method = random_method(owner, name)) return method;
    if (Ref attribute = cache_attribute(owner, name)) return attribute;
    if (graph::is_generator(owner)) return generator_attribute(owner, name);
    // They are called through call_context_variable().
    if (PyContextVar_CheckExact(owner.get()) && (equals(name, "get") || equals(name, "set") || equals(name, "reset")))
      return checked(PyObject_GetAttr(owner.get(), name.get()));
    stop(report::Reason::opaque_object, std::string(type->tp_name) + "." + text_of(name));
  }
  // What was there before is as it was found, not lifted.
  if (Py_IS_TYPE(owner.get(), &PyContextToken_Type)) stop(report::Reason::native_call, "Token." + text_of(name));
  const bool has_attributes = known != nullptr && known->instance;  // an exception, say
  if (has_attributes || ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !Natives::table().type(type)))
    return get_with_hooks(owner, name);

  if (PyCell_Check(owner.get()) && lifter.is_outside_cell(owner) && equals(name, "cell_contents")) {
    if (Ref contents = lifter.load_cell(owner)) return contents;
    PyErr_SetString(PyExc_ValueError, "Cell is empty");
    throw PyError();
  }
  // Asking for it makes it.
  if (known != nullptr && type == lift::known_types().partial && equals(name, "__dict__") &&
      *_PyObject_GetDictPtr(owner.get()) == nullptr)
    stop(report::Reason::opaque_object, "the __dict__ of a partial that has none yet");
  if (equals(name, "__dict__") || equals(name, "__reduce_ex__") || equals(name, "__reduce__") ||
      _PyType_Lookup(type, name.get()) == nullptr)
    lifter.open_attributes(owner);
  // Objects of builtin types: what they hold is lifted where they are private; what an outside one holds is not.
  Ref value = checked(PyObject_GetAttr(owner.get(), name.get()));
  const bool is_private = known == nullptr || Borrowed(known->original) != owner;
  if (is_private || known->shadow != nullptr || PyCFunction_Check(value.get()) ||
      Py_IS_TYPE(value.get(), &_PyMethodWrapper_Type) || PyMethod_Check(value.get()) ||
      lifter.known(value) != nullptr) {
    return value;
  }
  Borrowed field = _PyType_Lookup(type, name.get());
  if (field && (Py_IS_TYPE(field.get(), &PyMemberDescr_Type) || Py_IS_TYPE(field.get(), &PyGetSetDescr_Type)))
    return lifter.lift(value, tree->child(known->source, lift::Access::kField, name));
  if (field == Borrowed(value)) return value;  // of the type, which is guarded
  stop(report::Reason::opaque_object, std::string(type->tp_name) + "." + text_of(name));
} catch (const PyError&) {
  if (!stopped) cpython::name_attribute_error(owner, name);
  throw;
}

// A method of object's under the name of a builtin class: dict.__getattribute__ and its like.
template <class Slot>
static bool is_generic(Borrowed method, Slot* slot) {
  return Py_IS_TYPE(method.get(), &PyWrapperDescr_Type) &&
         reinterpret_cast<PyWrapperDescrObject*>(method.get())->d_wrapped == reinterpret_cast<void*>(slot);
}

// torch.ops.aten.add makes its overloads when they are asked for, and keeps them: one that is used is made before it is
// read.
static void make_overload(Tracer& tracer, Borrowed owner, Borrowed name) {
  if (std::strcmp(owner.type()->tp_name, "OpOverloadPacket") != 0 ||
      Borrowed(owner.type()) != graph::torch_name("torch._ops", "OpOverloadPacket"))
    return;
  const Paused paused(tracer);
  const Ref made = Ref::steal(PyObject_GetAttr(owner.get(), name.get()));
  PyErr_Clear();  // the program will see to it
}

// Python's own __getattribute__ and __getattr__, where a class has them.
Ref Tracer::get_with_hooks(Borrowed owner, Borrowed name) {
  PyTypeObject* type = owner.type();
  make_overload(*this, owner, name);
  Borrowed getattribute = lifter.type_attribute(type, names::__getattribute__);
  bool absent = false;
  Ref value;
  if (getattribute == Borrowed(Natives::table().object_getattribute) || type->tp_getattro == PyObject_GenericGetAttr ||
      ((is_generic(getattribute, PyObject_GenericGetAttr) || cpython::is_thread_local_slot(getattribute.get())) &&
       lifter.known(owner) != nullptr)) {
    value = get_generic(owner, name, &absent);
  } else if (PyFunction_Check(getattribute.get())) {
    PyObject* arguments[] = {nullptr, owner.get(), name.get()};
    try {
      value = call_function(lifter.lift(getattribute, lifter.constant(getattribute)), arguments + 1, 2, {});
    } catch (const PyError&) {
      if (stopped || !PyErr_ExceptionMatches(PyExc_AttributeError)) throw;
      absent = true;
    }
  } else if (lifter.known(owner) == nullptr && is_native_slot(getattribute)) {
    lifter.type_attribute(type, name);  // an object of the trace over a C type; what its class says is a fact
    if (is_written(type, name)) stop(report::Reason::class_write, type->tp_name + ("." + text_of(name)));
    return checked(PyObject_GetAttr(owner.get(), name.get()));
  } else {
    stop(report::Reason::native_call, std::string(type->tp_name) + ".__getattribute__");
  }
  if (!absent) return value;
  Borrowed fallback = lifter.type_attribute(type, names::__getattr__);
  if (!fallback) {
    if (PyErr_Occurred()) throw PyError();
    no_attribute(owner, name);
  }
  PyErr_Clear();
  PyObject* arguments[] = {nullptr, owner.get(), name.get()};
  if (PyFunction_Check(fallback.get()))
    return call_function(lifter.lift(fallback, lifter.constant(fallback)), arguments + 1, 2, {});
  if (Py_IS_TYPE(fallback.get(), &PyWrapperDescr_Type) || Py_IS_TYPE(fallback.get(), &PyMethodDescr_Type))
    return call(lifter.lift(fallback, lifter.constant(fallback)), arguments + 1, 2, {});  // dict.__getitem__
  stop(report::Reason::native_call, std::string(type->tp_name) + ".__getattr__");
}

// What an object of a Python class is as a descriptor is for that class to say, and may be changed. Descriptors and
// callables are guarded as they are; a plain value may become one.
void Tracer::use_descriptor(Borrowed attribute, PyTypeObject* type, Borrowed name) {
  PyTypeObject* kind = attribute.type();
  const bool is_python = (kind->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !PyType_Check(attribute.get());
  const bool is_value = kind->tp_descr_get == nullptr && !PyCallable_Check(attribute.get());
  if ((!is_python && !is_value) || lifter.made_here(attribute) || is_written(type, name)) return;
  lift::Source* source = lifter.attribute_source(type, name);
  if (source == nullptr) return;
  tree->guard(source, {lift::GuardKind::kType, Ref::share(reinterpret_cast<PyObject*>(kind))});
  if (is_python && !is_tensor(attribute)) lifter.use_special_methods(kind);
}

// Whether it is a data descriptor, which comes before what the instance has.
bool Tracer::comes_first(Borrowed attribute, PyTypeObject* type, Borrowed name) {
  use_descriptor(attribute, type, name);
  return is_data_descriptor(attribute);
}

// object.__getattribute__: data descriptor, instance dict, other descriptor, class attribute.
Ref Tracer::get_generic(Borrowed owner, Borrowed name, bool* absent) {
  PyTypeObject* type = owner.type();
  lift::Known* known = lifter.known(owner);
  const bool outside = known != nullptr && known->instance;
  if (outside && cpython::is_thread_local(type)) {
    if (equals(name, "__dict__")) return Ref(lifter.attributes(owner)->copy);
    // threading.local itself looks there first.
    if (lift::layout_base(type) == type) {
      if (Ref value = lifter.dict_item(*lifter.attributes(owner), name)) return value;
    }
  }
  // Looking into the instance may run an __eq__, which may take it off the class.
  const Ref attribute = Ref::share(lifter.type_attribute(type, name));
  if (attribute && comes_first(attribute, type, name)) {
    if (outside && Py_IS_TYPE(attribute.get(), &PyGetSetDescr_Type) && equals(name, "__dict__")) {
      if (lift::Shadow* attributes = lifter.attributes(owner)) return Ref(attributes->copy);
    }
    if (outside && Py_IS_TYPE(attribute.get(), &PyGetSetDescr_Type) && equals(name, "__class__")) {
      return Ref::share(reinterpret_cast<PyObject*>(type));
    }
    const bool is_member = Py_IS_TYPE(attribute.get(), &PyMemberDescr_Type);
    if ((outside && (is_member || Py_IS_TYPE(attribute.get(), &PyGetSetDescr_Type))) ||
        (is_member && known != nullptr && known->shadow != nullptr)) {
      Ref value = lifter.load_field(owner, name, attribute);
      *absent = !value;
      return value;
    }
    try {
      return bind_descriptor(attribute, owner, type, lifter.attribute_source(type, name));
    } catch (const PyError&) {
      if (stopped || !PyErr_ExceptionMatches(PyExc_AttributeError)) throw;
      *absent = true;
      return {};
    }
  }
  if (outside) {
    if (lift::Shadow* attributes = lifter.attributes(owner)) {
      if (Ref value = lifter.dict_item(*attributes, name)) return value;
    }
  } else if (PyObject** dict = _PyObject_GetDictPtr(owner.get()); dict != nullptr && *dict != nullptr) {
    if (PyObject* value = PyDict_GetItemWithError(*dict, name.get())) return Ref::share(value);
    if (PyErr_Occurred()) throw PyError();
  }
  if (attribute) {
    try {
      return bind_descriptor(attribute, owner, type, lifter.attribute_source(type, name), is_written(type, name));
    } catch (const PyError&) {
      if (stopped || !PyErr_ExceptionMatches(PyExc_AttributeError)) throw;
    }
  }
  *absent = true;
  return {};
}

// What an attribute found on a class means for `owner` (null: for the class itself). Without a source, a class of the
// trace has it of its own.
Ref Tracer::bind_descriptor(Borrowed attribute, Borrowed owner, PyTypeObject* type, lift::Source* source,
                            bool written) {
  PyTypeObject* kind = attribute.type();
  const Ref held = Ref::share(attribute);  // its __get__ may take it off the class
  const bool fixed = written || source == nullptr || lifter.made_here(attribute);
  auto function_of = [&](Borrowed function) {
    return fixed || !function ? Ref::share(function) : lifter.lift(function, lifter.constant(function));
  };
  if (PyFunction_Check(attribute.get())) {
    Ref function = function_of(attribute);
    return owner ? checked(PyMethod_New(function.get(), owner.get())) : std::move(function);
  }
  if (kind == &PyProperty_Type && owner) {
    Ref getter = checked(PyObject_GetAttrString(attribute.get(), "fget"));
    if (PyFunction_Check(getter.get())) {
      PyObject* arguments[] = {nullptr, owner.get()};
      return call_function(function_of(getter), arguments + 1, 1, {});
    }
  }
  if (owner && !fixed && is_cached_property(kind)) return get_cached_property(attribute, owner, source);
  descrgetfunc get = kind->tp_descr_get;
  if (get == nullptr) return fixed ? Ref::share(attribute) : lifter.lift(attribute, source);
  // A descriptor of a Python class runs its __get__ as a traced frame, on itself as it is lifted.
  const bool python_descriptor = (kind->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0;
  if (python_descriptor && !fixed) {
    lifter.use_special_methods(kind);
    if (Borrowed(lifter.lift(attribute, source)) != attribute)
      stop(report::Reason::cannot_lift, "a descriptor that needs a private copy");
  }
  Ref value = checked(get(attribute.get(), owner.get(), reinterpret_cast<PyObject*>(type)));
  if (owner && lift::is_numpy_number(owner.get()) && !lift::is_plain(value.get()) && !PyCFunction_Check(value.get()) &&
      !Py_IS_TYPE(value.get(), &_PyMethodWrapper_Type)) {
    stop(report::Reason::native_call, std::string("an attribute of ") + type->tp_name);
  }
  if (fixed || python_descriptor) return value;
  // What an object of the trace keeps in its own fields, its __dict__ among them, is of the trace too.
  const bool is_field = kind == &PyGetSetDescr_Type || kind == &PyMemberDescr_Type;
  if (is_field && owner && lifter.known(owner) == nullptr && !PyType_Check(value.get())) return value;
  if (PyMethod_Check(value.get())) {
    (void)function_of(PyMethod_GET_FUNCTION(value.get()));  // a class method's code is guarded like any other
    return value;
  }
  if (PyFunction_Check(value.get())) return function_of(value);
  if (PyCFunction_Check(value.get()) || Py_IS_TYPE(value.get(), &_PyMethodWrapper_Type)) return value;
  // What a C descriptor finds in an object of the trace is the trace's own: a slot, its __dict__.
  if (owner && (lifter.known(owner) == nullptr || PyTuple_Check(owner.get()))) return value;
  // ... and what it finds in an outside object has no place that could be found again.
  if (owner && !PyType_Check(owner.get()) && kind != &PyStaticMethod_Type)
    stop(report::Reason::native_call, std::string("a descriptor of type ") + kind->tp_name);
  if (lift::is_plain(value.get())) return value;
  return lifter.lift(value, lifter.constant(value));
}

// functools.cached_property, without the lock that it takes up to CPython 3.11.
Ref Tracer::get_cached_property(Borrowed property, Borrowed owner, lift::Source* source) {
  Ref lifted = lifter.lift(property, source);
  auto field = [&](const char* name) { return get_attribute(lifted, checked(PyUnicode_InternFromString(name))); };
  Ref name = field("attrname"), function = field("func");
  if (!PyUnicode_CheckExact(name.get())) stop(report::Reason::native_call, "a cached_property without a name");
  PyObject* arguments[] = {nullptr, owner.get()};
  Ref value = call(function, arguments + 1, 1, {});
  Ref dict = get_attribute(owner, names::__dict__);
  set_item(dict, name, value);
  return value;
}

Ref Tracer::get_from_module(Borrowed module, Borrowed name) {
  lift::Shadow& name_space = lifter.name_space(PyModule_GetDict(module.get()));
  if (equals(name, "__dict__")) return Ref(name_space.copy);
  if (!graph::is_plain_module_class(module.type())) {  // torch.backends.cudnn.enabled
    PyObject* attribute = _PyType_Lookup(module.type(), name.get());
    if (attribute != nullptr && Py_TYPE(attribute)->tp_descr_set != nullptr &&
        (Py_TYPE(attribute)->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0)
      return bind_descriptor(attribute, module, module.type(), lifter.constant(attribute));
    Borrowed property = lifter.type_attribute(module.type(), name);
    if (property && Py_IS_TYPE(property.get(), &PyProperty_Type))
      return bind_descriptor(property, module, module.type(), lifter.attribute_source(module.type(), name));
  }
  if (Ref value = lifter.dict_item(name_space, name)) return value;
  Ref fallback = lifter.dict_item(name_space, names::__getattr__);
  if (fallback && PyFunction_Check(fallback.get())) {
    PyObject* arguments[] = {nullptr, name.get()};
    return call_function(fallback, arguments + 1, 1, {});
  }
  if (PyObject* attribute = _PyType_Lookup(module.type(), name.get());
      attribute != nullptr && graph::is_plain_module_class(module.type())) {
    return checked(PyObject_GetAttr(module.get(), name.get()));
  }
  if (!graph::is_plain_module_class(module.type())) {  // torch.ops: it makes what is asked for
    Ref owner = Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(module.type()), "__module__"));
    PyErr_Clear();
    const char* text = owner && PyUnicode_Check(owner.get()) ? PyUnicode_AsUTF8(owner.get()) : nullptr;
    if (text == nullptr || (strcmp(text, "torch") != 0 && strncmp(text, "torch.", 6) != 0))
      stop(report::Reason::native_call, "an attribute of a module with a class of its own");
    Ref value = [&] {
      const Paused paused(*this);
      return checked(PyObject_GetAttr(module.get(), name.get()));
    }();
    // What is made stays; a number or a text may be another one tomorrow.
    if (lift::is_plain(value.get())) stop(report::Reason::native_call, "a value that a module's class computes");
    if (PyMethod_Check(value.get()) && Borrowed(PyMethod_GET_SELF(value.get())) == module) {
      // A method of the module's class: bound anew each time, so that no guard may be about this one.
      Borrowed function = PyMethod_GET_FUNCTION(value.get());
      return checked(PyMethod_New(lifter.lift(function, lifter.constant(function)).get(), module.get()));
    }
    return lifter.lift(value, lifter.constant(value));
  }
  PyErr_Format(PyExc_AttributeError, "module '%s' has no attribute '%U'", PyModule_GetName(module.get()), name.get());
  throw PyError();
}

// type.__getattribute__: the metaclass's data descriptors, the class and its bases, the metaclass.
Ref Tracer::get_from_type(PyTypeObject* type, Borrowed name) {
  Borrowed cls = reinterpret_cast<PyObject*>(type);
  PyTypeObject* metaclass = cls.type();
  if (metaclass != &PyType_Type) {
    // A metaclass with __getattr__ of its own: ask it after the regular rules.
    Ref getattribute_name = checked(PyUnicode_InternFromString("__getattribute__"));
    Borrowed getattribute = lifter.type_attribute(metaclass, getattribute_name);
    if (PyFunction_Check(getattribute.get())) stop(report::Reason::native_call, "a metaclass with __getattribute__");
  }
  const Ref meta_attribute = Ref::share(lifter.type_attribute(metaclass, name));
  if (meta_attribute && comes_first(meta_attribute, metaclass, name)) {
    if (metaclass == &PyType_Type || Py_IS_TYPE(meta_attribute.get(), &PyGetSetDescr_Type) ||
        Py_IS_TYPE(meta_attribute.get(), &PyMemberDescr_Type)) {
      if (equals(name, "__dict__")) return checked(PyDictProxy_New(lifter.class_dict(type).get()));
      Ref value = checked(PyObject_GetAttr(cls.get(), name.get()));  // __name__, __mro__, ...
      const bool fixed = (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0;
      if (lifter.made_here(cls)) return value;
      if (fixed && (lift::is_plain(value.get()) || PyType_Check(value.get()))) return value;
      return lifter.lift(value, tree->child(lifter.constant(cls), lift::Access::kField, name));
    }
    return bind_descriptor(meta_attribute, cls, metaclass, lifter.attribute_source(metaclass, name));
  }
  if (Borrowed attribute = lifter.type_attribute(type, name)) {
    return bind_descriptor(attribute, {}, type, lifter.attribute_source(type, name), is_written(type, name));
  }
  if (meta_attribute) return bind_descriptor(meta_attribute, cls, metaclass, lifter.attribute_source(metaclass, name));
  Ref getattr_name = checked(PyUnicode_InternFromString("__getattr__"));
  if (Borrowed fallback = lifter.type_attribute(metaclass, getattr_name);
      fallback && PyFunction_Check(fallback.get())) {
    PyObject* arguments[] = {nullptr, cls.get(), name.get()};
    return call_function(lifter.lift(fallback, lifter.constant(fallback)), arguments + 1, 2, {});
  }
  no_attribute(cls, name);
}

Ref Tracer::get_from_function(Borrowed function, Borrowed name) {
  if (lifter.made_here(function)) return checked(PyObject_GetAttr(function.get(), name.get()));
  lift::Known* known = lifter.known(function);
  if (known == nullptr) {
    (void)lifter.lift(function, lifter.constant(function));
    known = lifter.known(function);
  }
  if (equals(name, "__dict__")) {
    if (lift::Shadow* attributes = lifter.attributes(function)) return Ref(attributes->copy);
  }
  if (_PyType_Lookup(function.type(), name.get()) == nullptr) {
    if (lift::Shadow* attributes = lifter.attributes(function)) {
      if (Ref value = lifter.dict_item(*attributes, name)) return value;
    }
    no_attribute(function, name);
  }
  if (is_written_field(name)) {
    Ref value = lifter.load_field(function, name, _PyType_Lookup(function.type(), name.get()));
    if (!value) no_attribute(function, name);
    return value;
  }
  Ref value = checked(PyObject_GetAttr(function.get(), name.get()));
  if (Py_IS_TYPE(value.get(), &_PyMethodWrapper_Type) || PyType_Check(value.get())) return value;
  if (equals(name, "__globals__")) return Ref(lifter.name_space(value).copy);
  return lifter.lift(value, tree->child(lifter.known(function)->source, lift::Access::kField, name));
}

// The classes after __thisclass__ in the instance's order; each that lacks the name is a fact of its own.
Ref Tracer::get_from_super(Borrowed super, Borrowed name) {
  auto field = [&](const char* text) { return checked(PyObject_GetAttrString(super.get(), text)); };
  if (equals(name, "__class__")) return Ref::share(reinterpret_cast<PyObject*>(super.type()));
  Ref after = field("__thisclass__"), start = field("__self_class__"), self = field("__self__");
  if (!PyType_Check(start.get())) return checked(PyObject_GetAttr(super.get(), name.get()));
  PyObject* order = start.as<PyTypeObject>()->tp_mro;
  if (order != nullptr) guard_order_of_bases(start);  // else the class is being made: its mro() runs
  bool found_class = false;
  for (Py_ssize_t i = 0; order != nullptr && i < PyTuple_GET_SIZE(order); i++) {
    Borrowed cls = PyTuple_GET_ITEM(order, i);
    if (!found_class) {
      found_class = cls == Borrowed(after);
      continue;
    }
    auto* type = cls.as<PyTypeObject>();
    const bool unbound_class = Borrowed(self) == Borrowed(start);
    if (const lift::Place* place = lifter.class_place(type, name)) {
      if (!place->value) continue;
      return bind_descriptor(place->value, unbound_class ? Borrowed() : Borrowed(self), start.as<PyTypeObject>(),
                             lifter.constant(place->value), true);
    }
    Borrowed attribute = PyDict_GetItemWithError(cpython::own_dict(type), name.get());
    const bool guarded = (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) == 0 && !lifter.made_here(cls);
    if (guarded) {
      lift::Source* own = tree->child(lifter.constant(cls), lift::Access::kDict);
      if (attribute) {
        tree->guard(tree->child(own, lift::Access::kItem, name), {lift::GuardKind::kIs, Ref::share(attribute)});
      } else {
        tree->guard(own, {lift::GuardKind::kLacksKey, Ref::share(name)});
      }
    }
    if (!attribute) continue;
    return bind_descriptor(attribute, unbound_class ? Borrowed() : Borrowed(self), start.as<PyTypeObject>(),
                           lifter.made_here(cls) ? nullptr : lifter.constant(attribute));
  }
  return checked(PyObject_GetAttr(super.get(), name.get()));
}

// --- writing ----------------------------------------------------------------------------------------------

static bool is_config(PyTypeObject* type) {
  static constinit Lasting<Ref> lasting;
  const Ref& config = lasting.get([] { return graph::torch_name("torch.utils._config_module", "ConfigModule"); });
  return PyType_IsSubtype(type, config.as<PyTypeObject>()) != 0;
}

// A setting of torch's (torch._inductor.config): its class keeps it elsewhere. It is set when the graph has run; until
// then nobody reads it, since what a module's class computes is a break. False: the class has no say.
static bool set_on_odd_module(Tracer& tracer, Borrowed module, Borrowed name, Borrowed value) {
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
  tracer.lifter.add_effect({Ref::share(Natives::table().setattr), std::move(given), {}});
  return true;
}

void Tracer::set_attribute(Borrowed owner, Borrowed name, Borrowed value) {
  PyTypeObject* type = owner.type();
  if (value) lifter.escape(value);
  auto natively = [&] { check_status(PyObject_SetAttr(owner.get(), name.get(), value.get())); };
  if (is_proxy_of_trace(lifter, owner))
    return set_attribute(Ref::share(PyWeakref_GetObject(owner.get())), name, value);
  if (PyType_Check(owner.get())) {
    if (!lifter.made_here(owner)) return set_on_class(owner.as<PyTypeObject>(), name, value);
    return natively();
  }
  if (lift::is_array(owner.get())) stop(report::Reason::native_call, text_of(name) + " of an array is set");
  lift::Known* known = lifter.known(owner);
  if (is_tensor(owner)) {
    const bool is_grad = equals(name, "grad");
    // What torch's classes know nothing of is the program's own, and in the tensor's dict.
    if (known != nullptr && known->source != nullptr && !lifter.type_attribute(type, name) &&
        is_generic(_PyType_Lookup(type, checked(PyUnicode_InternFromString("__setattr__")).get()),
                   PyObject_GenericSetAttr)) {
      if (lift::Shadow* attributes = lifter.attributes(owner)) {
        if (!value && !lifter.dict_item(*attributes, name)) no_attribute(owner, name, true);
        return lifter.dict_store(*attributes, name, value);
      }
    }
    if (known != nullptr && equals(name, "requires_grad") && value && PyBool_Check(value.get()) &&
        get_attribute(owner, name) == value &&
        get_attribute(owner, checked(PyUnicode_InternFromString("is_leaf"))).get() == Py_True) {
      return;  // it is what it was
    }
    // A tensor of torch's own classes gets other data by a node, as one that the trace has made does.
    const bool is_data = equals(name, "data") && value && is_tensor(value) && !transformed_ && !is_under_modes() &&
                         (type == graph::torch_types().tensor || type == graph::torch_types().parameter);
    if (known != nullptr && !is_data && (!is_grad || known->source == nullptr))
      stop(report::Reason::tensor_attribute, text_of(name) + " is set");
    if (is_overridden(owner) && is_torchs_getter(_PyType_Lookup(owner.type(), name.get())))
      stop(report::Reason::tensor_attribute, text_of(name) + " of a tensor with a __torch_function__ is set");
    const TorchRuns runs(*this);
    if (known != nullptr && is_data) {
      if (PyObject_SetAttr(owner.get(), name.get(), value.get()) == 0) return;
      if (is_unwinding()) throw PyError();
      PyErr_Clear();
      stop(report::Reason::torch_call, "data is set");
    }
    natively();  // with the checks of eager
    if (known != nullptr && is_grad) lifter.store_field(owner, name, value ? Ref::share(value) : Ref::share(Py_None));
    return;
  }
  if (PyModule_Check(owner.get())) {
    const bool is_odd = !graph::is_plain_module_class(type);
    if (is_odd && set_on_odd_module(*this, owner, name, value)) return;
    if (PyObject* attribute = is_odd ? _PyType_Lookup(type, name.get()) : nullptr;
        attribute != nullptr && Py_TYPE(attribute)->tp_descr_set != nullptr)
      return set_generic(owner, name, value);
    lift::Shadow& name_space = lifter.name_space(PyModule_GetDict(owner.get()));
    if (!value && !lifter.dict_item(name_space, name)) no_attribute(owner, name, true);
    check_end(lifter.peek(PyModule_GetDict(owner.get()), name), nullptr);
    return lifter.dict_store(name_space, name, value);
  }
  if (known != nullptr && known->opaque)
    stop(report::Reason::opaque_object, std::string(type->tp_name) + "." + text_of(name));
  Ref hook_name = checked(PyUnicode_InternFromString(value ? "__setattr__" : "__delattr__"));
  Borrowed hook = lifter.type_attribute(type, hook_name);
  if (known == nullptr || !known->instance) {
    // Without attributes of its own in the trace: a property, a cell, a partial.
    if (known != nullptr && known->shadow == nullptr) {
      if (PyCell_Check(owner.get()) && equals(name, "cell_contents") && lifter.is_outside_cell(owner))
        return store_cell(owner, Ref::share(value));
      if (lift::is_decimal_context(owner.get())) return natively();  // the copy; it is written back at the end
      stop(report::Reason::native_call, std::string("a field of a ") + type->tp_name + " is set");
    }
    // A private object: its own dict is private too; the class's say in it is a fact.
    lifter.open_attributes(owner);
    if (Borrowed attribute = lifter.type_attribute(type, name)) {
      use_descriptor(attribute, type, name);
      lift_descriptor(type, attribute, name);
    }
    if (is_generic(hook, PyObject_GenericSetAttr) && set_member_of_container(lifter, owner, name, value)) return;
    return natively();
  }
  if (PyFunction_Check(owner.get())) {
    if (lifter.made_here(owner)) return natively();
    if (_PyType_Lookup(type, name.get()) != nullptr) {
      // Those that calling the function does not look at.
      if (!value || !is_written_field(name)) stop(report::Reason::native_call, "a field of a function is set");
      const bool is_name = !equals(name, "__doc__") && !equals(name, "__module__");
      if (is_name && !PyUnicode_CheckExact(value.get()))
        stop(report::Reason::native_call, "a name of a function is set to something else than text");
      return lifter.store_field(owner, name, Ref::share(value));
    }
    return set_generic(owner, name, value);
  }
  if (hook && PyFunction_Check(hook.get())) {
    PyObject* arguments[] = {nullptr, owner.get(), name.get(), value.get()};
    (void)call_function(lifter.lift(hook, lifter.constant(hook)), arguments + 1, value ? 3 : 2, {});
    return;
  }
  const bool is_local = hook && cpython::is_thread_local_slot(hook.get());
  if (hook && !is_generic(hook, PyObject_GenericSetAttr) && !(is_local && !equals(name, "__dict__")))
    stop(report::Reason::native_call, std::string(type->tp_name) + "." + text_of(hook_name));
  set_generic(owner, name, value);
}

// A descriptor of a Python class, whose __set__ native code is about to call on it.
void Tracer::lift_descriptor(PyTypeObject* type, Borrowed attribute, Borrowed name) {
  if (!attribute || attribute.type()->tp_descr_set == nullptr || lifter.made_here(attribute) ||
      lifter.attribute_source(type, name) == nullptr || lifter.known(attribute) != nullptr ||
      (attribute.type()->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) {
    return;
  }
  lifter.use_special_methods(attribute.type());
  if (Borrowed(lifter.lift(attribute, lifter.attribute_source(type, name))) != attribute)
    stop(report::Reason::cannot_lift, "a descriptor that needs a private copy");
}

// A class of the outside world is not written: what the program writes is kept beside it, and found there by every
// look-up of ours. Native code looks for itself; so what that may ask for is not taken: special methods, data
// descriptors.
void Tracer::set_on_class(PyTypeObject* type, Borrowed name, Borrowed value) {
  Borrowed cls = reinterpret_cast<PyObject*>(type);
  PyTypeObject* metaclass = cls.type();
  Ref hook_name = checked(PyUnicode_InternFromString(value ? "__setattr__" : "__delattr__"));
  Borrowed hook = lifter.type_attribute(metaclass, hook_name);
  if (hook && PyFunction_Check(hook.get())) {
    PyObject* arguments[] = {nullptr, cls.get(), name.get(), value.get()};
    (void)call_function(lifter.lift(hook, lifter.constant(hook)), arguments + 1, value ? 3 : 2, {});
    return;
  }
  if (hook && hook.type() != &PyWrapperDescr_Type) stop(report::Reason::class_write, metaclass->tp_name);
  store_on_class(type, name, value);
}

void Tracer::store_on_class(PyTypeObject* type, Borrowed name, Borrowed value) {
  Borrowed cls = reinterpret_cast<PyObject*>(type);
  const std::string what = std::string(type->tp_name) + "." + text_of(name);
  auto refuse = [&](bool condition) {
    if (condition) stop(report::Reason::class_write, what);
  };
  if ((type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0 || lifter.made_here(cls)) {
    check_status(PyType_Type.tp_setattro(cls.get(), name.get(), value.get()));
    return;
  }
  const std::string text = text_of(name);
  refuse(!PyUnicode_CheckExact(name.get()) || (text.size() > 4 && text.starts_with("__") && text.ends_with("__")));
  refuse(PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(THPVariableClass)) != 0);
  Borrowed of_metaclass = lifter.type_attribute(cls.type(), name);
  refuse(of_metaclass && of_metaclass.type()->tp_descr_set != nullptr);
  Borrowed before = _PyType_Lookup(type, name.get());
  refuse(before && before.type()->tp_descr_set != nullptr);
  refuse(value && value.type()->tp_descr_set != nullptr);
  const lift::Place* place = lifter.class_place(type, name);
  bool writes = true;
  if (!value) {
    const bool has = PyDict_GetItemWithError(cpython::own_dict(type), name.get()) != nullptr;
    refuse(place != nullptr ? !place->value : !has);
    tree->guard(tree->child(lifter.constant(cls), lift::Access::kDict),
                {has ? lift::GuardKind::kHasKey : lift::GuardKind::kLacksKey, Ref::share(name)});
    writes = has;  // made and deleted again in the call: nothing is left to do
  }
  // That it is no data descriptor is a fact too.
  if (place == nullptr && before)
    tree->guard(lifter.attribute_source(type, name), {lift::GuardKind::kType, Ref::share(before.type())});
  if (place == nullptr && !before) tree->guard(lifter.attribute_source(type, name), {lift::GuardKind::kAbsent});
  if (place == nullptr && before) check_end(before, lifter.attribute_source(type, name));
  lifter.store_class_attribute(type, name, Ref::share(value), writes);
}

void Tracer::set_generic(Borrowed owner, Borrowed name, Borrowed value) {
  PyTypeObject* type = owner.type();
  Borrowed attribute = lifter.type_attribute(type, name);
  if (attribute) use_descriptor(attribute, type, name);
  if (attribute && attribute.type()->tp_descr_set != nullptr) {
    if (Py_IS_TYPE(attribute.get(), &PyMemberDescr_Type)) {
      if (!value && !lifter.load_field(owner, name, attribute)) {
        PyErr_SetObject(PyExc_AttributeError, name.get());
        throw PyError();
      }
      if (lift::Known* known = lifter.known(owner); known != nullptr && !lifter.written_field(owner, name)) {
        Ref old = Ref::steal(
            attribute.type()->tp_descr_get(attribute.get(), known->original.get(), reinterpret_cast<PyObject*>(type)));
        if (!old) PyErr_Clear();
        check_end(old, tree->child(known->source, lift::Access::kField, name));
      }
      return lifter.store_field(owner, name, Ref::share(value));
    }
    if (Py_IS_TYPE(attribute.get(), &PyGetSetDescr_Type)) stop(report::Reason::native_call, text_of(name) + " is set");
    if (Py_IS_TYPE(attribute.get(), &PyProperty_Type)) {
      Ref setter = checked(PyObject_GetAttrString(attribute.get(), value ? "fset" : "fdel"));
      if (PyFunction_Check(setter.get())) {
        PyObject* arguments[] = {nullptr, owner.get(), value.get()};
        (void)call_function(lifter.lift(setter, lifter.constant(setter)), arguments + 1, value ? 2 : 1, {});
        return;
      }
    } else {
      lift_descriptor(type, attribute, name);
    }
    check_status(attribute.type()->tp_descr_set(attribute.get(), owner.get(), value.get()));
    return;
  }
  lift::Shadow* attributes = lifter.attributes(owner);
  if (attributes == nullptr) no_attribute(owner, name, true);
  if (!value && !lifter.dict_item(*attributes, name)) no_attribute(owner, name, true);
  lifter.dict_store(*attributes, name, value);
}

Ref Tracer::special_method(Borrowed owner, Borrowed name) {
  if (is_hook_handle(owner)) stop(report::Reason::hook, "its handle is used");
  lift::Known* known = lifter.known(owner);
  if (known != nullptr && known->opaque)
    stop(report::Reason::opaque_object, std::string(owner.type()->tp_name) + "." + text_of(name));
  Borrowed attribute = lifter.type_attribute(owner.type(), name);
  if (!attribute) return {};
  if (name.get() == names::__exit__ && frame_ != nullptr) {
    keep_alive.push_back(Ref::share(reinterpret_cast<PyObject*>(cpython::code_of(frame_))));
    note_manager(cpython::code_of(frame_), index_, owner);
  }
  if (known != nullptr && known->instance && Py_IS_TYPE(attribute.get(), &PyMemberDescr_Type))
    return lifter.load_field(owner, name, attribute);
  return bind_descriptor(attribute, owner, owner.type(), lifter.attribute_source(owner.type(), name));
}

}  // namespace alternator::trace
