// Attribute reads: the language's rules, over private copies and guarded classes.
#include "trace/opcodes/attributes.h"
#include "trace/calls/call_dispatch.h"
#include "trace/calls/instance_tests.h"
#include "trace/calls/python_functions.h"
#include "trace/core/frame_access.h"
#include "trace/numpy/concrete_arrays.h"
#include "trace/opcodes/items.h"
#include "trace/stdlib/lru_caches.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/symbolic/deferred_values.h"
#include "trace/torch/random_generators.h"
#include "trace/torch/tensor_hooks.h"

#include "cpython/attribute_error.h"
#include "cpython/objects.h"
#include "cpython/thread_locals.h"
#include "cpython/version.h"
#include "fake/python_tensor.h"
#include "graph/record/torch_warnings.h"
#include "lift/lifting/cells.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/fields.h"
#include "lift/lifting/layouts.h"
#include "lift/lifting/namespaces.h"
#include "lift/sources/decimal_values.h"
#include "py/import.h"
#include "py/lasting.h"
#include "py/names.h"
#include "trace/calls/natives.h"
#include "trace/soundness/address_identity.h"
#include "trace/soundness/observable_failures.h"
#include "trace/torch/tensor_attributes.h"

#include <frameobject.h>

namespace alternator::trace {

static Ref get_with_hooks(Tracer& t, Borrowed owner, Borrowed name);
static Ref get_cached_property(Tracer& t, Borrowed property, Borrowed owner, lift::Source* source);

namespace {

bool is_tensor(Borrowed object) { return graph::is_tensor(object); }
bool is_data_descriptor(Borrowed descriptor) {
  return descriptor.type()->tp_descr_get != nullptr && descriptor.type()->tp_descr_set != nullptr;
}
// Whether the AttributeError of setting or deleting a missing attribute has its name: since CPython 3.12.
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

// A slot of a C type whose instances hold nothing but what they are given.
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
  // Read by the "did you mean" suggestion.
  if (PyObject_SetAttrString(error.get(), "name", name.get()) < 0) PyErr_Clear();
  if (PyObject_SetAttrString(error.get(), "obj", owner.get()) < 0) PyErr_Clear();
  cpython::set_raised(std::move(error));
  throw PyError();
}

// What an int or a float, whatever its value, says of itself; null: something else.
static Ref part_of_number(Borrowed symbol, Borrowed name) {
  if (fake::is_truth_symbol(symbol)) return {};
  const bool is_integer = fake::class_of_symbol(symbol) == &PyLong_Type;
  if (equals(name, "real") || (is_integer && equals(name, "numerator"))) return Ref::share(symbol);
  if (equals(name, "imag")) return checked(is_integer ? PyLong_FromLong(0) : PyFloat_FromDouble(0));
  return is_integer && equals(name, "denominator") ? checked(PyLong_FromLong(1)) : Ref();
}

Ref get_attribute(Tracer& t, Borrowed owner, Borrowed name) try {
  PyTypeObject* type = owner.type();
  if (PyModule_Check(owner.get())) return get_from_module(t, owner, name);
  if (PyType_Check(owner.get())) return get_from_type(t, owner.as<PyTypeObject>(), name);
  if (type == &PySuper_Type) return get_from_super(t, owner, name);
  if (is_tensor(owner)) return get_from_tensor(t, owner, name);
  if (PyFunction_Check(owner.get())) return get_from_function(t, owner, name);
  if (PyFrame_Check(owner.get())) return t.frames->get_from_frame(owner, name);
  if (lift::is_array(owner.get())) return t.arrays->get_from_array(owner, name);
  if (is_proxy_of_trace(t.lifter, owner)) return get_attribute(t, Ref::share(PyWeakref_GetObject(owner.get())), name);
  // A bound method forwards attributes that it lacks to its function, and __doc__ too.
  if (type == &PyMethod_Type && (_PyType_Lookup(type, name.get()) == nullptr || equals(name, "__doc__")))
    return get_attribute(t, Ref::share(PyMethod_GET_FUNCTION(owner.get())), name);
  if (is_identity(owner) && equals(name, "__class__")) return Ref::share(&PyLong_Type);
  if (fake::is_symbol(owner)) {
    if (equals(name, "__class__")) return Ref::share(fake::class_of_symbol(owner));
    if (Ref part = part_of_number(owner, name)) return part;
    if (!is_unbacked(t, owner)) return get_attribute(t, owner, name);
    stop(report::Reason::unbacked_value, "the attribute " + text_of(name));
  }
  lift::Known* known = t.lifter.known(owner);
  if (is_deferred_random(owner)) stop(report::Reason::random_number, "an attribute");
  if (is_deferred_string(owner)) stop(report::Reason::tensor_text, "an attribute");
  if (is_hook_handle(owner)) stop(report::Reason::hook, "its handle is used");
  if (known != nullptr && known->opaque) {
    if (Ref method = t.deferred->random_method(owner, name)) return method;
    if (Ref attribute = t.lru_caches->attribute(owner, name)) return attribute;
    if (graph::is_generator(owner)) return t.generators->attribute(owner, name);
    // They have handlers (context_variables.cpp).
    if (PyContextVar_CheckExact(owner.get()) && (equals(name, "get") || equals(name, "set") || equals(name, "reset")))
      return checked(PyObject_GetAttr(owner.get(), name.get()));
    stop(report::Reason::opaque_object, std::string(type->tp_name) + "." + text_of(name));
  }
  // Token.old_value would be the pre-existing value, not lifted.
  if (Py_IS_TYPE(owner.get(), &PyContextToken_Type)) stop(report::Reason::native_call, "Token." + text_of(name));
  const bool has_attributes = known != nullptr && known->instance;  // an exception, say
  if (has_attributes || ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !Natives::table().type(type)))
    return get_with_hooks(t, owner, name);

  if (PyCell_Check(owner.get()) && t.lifter.cells->is_preexisting(owner) && equals(name, "cell_contents")) {
    if (Ref contents = t.lifter.cells->load(owner)) return contents;
    PyErr_SetString(PyExc_ValueError, "Cell is empty");
    throw PyError();
  }
  // Reading it creates it.
  if (known != nullptr && type == lift::known_types().partial && equals(name, "__dict__") &&
      *_PyObject_GetDictPtr(owner.get()) == nullptr)
    stop(report::Reason::opaque_object, "the __dict__ of a partial that has none yet");
  if (equals(name, "__dict__") || equals(name, "__reduce_ex__") || equals(name, "__reduce__") ||
      _PyType_Lookup(type, name.get()) == nullptr)
    t.lifter.namespaces->open_attributes(owner);
  // Objects of builtin types: the contents of a private object are lifted; those of a pre-existing one are not.
  Ref value = checked(PyObject_GetAttr(owner.get(), name.get()));
  const bool is_private = known == nullptr || Borrowed(known->original) != owner;
  if (is_private || known->shadow != nullptr || PyCFunction_Check(value.get()) ||
      Py_IS_TYPE(value.get(), &_PyMethodWrapper_Type) || PyMethod_Check(value.get()) ||
      t.lifter.known(value) != nullptr) {
    return value;
  }
  Borrowed field = _PyType_Lookup(type, name.get());
  if (field && (Py_IS_TYPE(field.get(), &PyMemberDescr_Type) || Py_IS_TYPE(field.get(), &PyGetSetDescr_Type)))
    return t.lifter.lift(value, t.tree->child(known->source, lift::Access::kField, name));
  if (field == Borrowed(value)) return value;  // of the type, which is guarded
  stop(report::Reason::opaque_object, std::string(type->tp_name) + "." + text_of(name));
} catch (const PyError&) {
  if (!t.result.stopped) cpython::name_attribute_error(owner, name);
  throw;
}

// torch.ops.aten.add creates its overloads on first access, and caches them: an overload is created before it is read.
static void make_overload(Tracer& tracer, Borrowed owner, Borrowed name) {
  static constinit Lasting<PyObject*> packet;
  if (Borrowed(owner.type()) !=
      packet.get([] { return graph::torch_name("torch._ops", "OpOverloadPacket").release(); }))
    return;
  const Paused paused(tracer);
  const Ref made = Ref::steal(PyObject_GetAttr(owner.get(), name.get()));
  PyErr_Clear();  // the program's own access will raise it
}

// Python-level __getattribute__ and __getattr__, if a class defines them.
static Ref get_with_hooks(Tracer& t, Borrowed owner, Borrowed name) {
  PyTypeObject* type = owner.type();
  make_overload(t, owner, name);
  Borrowed getattribute = t.lifter.classes->attribute(type, names::__getattribute__);
  bool absent = false;
  Ref value;
  if (getattribute == Borrowed(Natives::table().object_getattribute) || type->tp_getattro == PyObject_GenericGetAttr ||
      ((is_generic(getattribute, PyObject_GenericGetAttr) || cpython::is_thread_local_slot(getattribute.get())) &&
       t.lifter.known(owner) != nullptr)) {
    value = get_generic(t, owner, name, &absent);
  } else if (PyFunction_Check(getattribute.get())) {
    PyObject* arguments[] = {nullptr, owner.get(), name.get()};
    try {
      value = call_function(t, {t.lifter.lift(getattribute, t.lifter.constant(getattribute)), arguments + 1, 2, {}});
    } catch (const PyError&) {
      if (t.result.stopped || !PyErr_ExceptionMatches(PyExc_AttributeError)) throw;
      absent = true;
    }
  } else if (t.lifter.known(owner) == nullptr && is_native_slot(getattribute)) {
    t.lifter.classes->attribute(type, name);  // an object that the trace made, of a C type; its class is guarded
    if (is_written_by_program(t, type, name)) stop(report::Reason::class_write, type->tp_name + ("." + text_of(name)));
    return checked(PyObject_GetAttr(owner.get(), name.get()));
  } else {
    stop(report::Reason::native_call, std::string(type->tp_name) + ".__getattribute__");
  }
  if (!absent) return value;
  Borrowed fallback = t.lifter.classes->attribute(type, names::__getattr__);
  if (!fallback) {
    if (PyErr_Occurred()) throw PyError();
    no_attribute(owner, name);
  }
  PyErr_Clear();
  PyObject* arguments[] = {nullptr, owner.get(), name.get()};
  if (PyFunction_Check(fallback.get()))
    return call_function(t, {t.lifter.lift(fallback, t.lifter.constant(fallback)), arguments + 1, 2, {}});
  if (Py_IS_TYPE(fallback.get(), &PyWrapperDescr_Type) || Py_IS_TYPE(fallback.get(), &PyMethodDescr_Type))
    return call(t, {t.lifter.lift(fallback, t.lifter.constant(fallback)), arguments + 1, 2, {}});  // dict.__getitem__
  stop(report::Reason::native_call, std::string(type->tp_name) + ".__getattr__");
}

// Whether an object of a Python class is a descriptor depends on that class, which may be changed. Descriptors and
// callables are guarded by identity; a plain value may be replaced by a descriptor.
void use_descriptor(Tracer& t, Borrowed attribute, PyTypeObject* type, Borrowed name) {
  PyTypeObject* kind = attribute.type();
  const bool is_python = (kind->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !PyType_Check(attribute.get());
  const bool is_value = kind->tp_descr_get == nullptr && !PyCallable_Check(attribute.get());
  if ((!is_python && !is_value) || t.lifter.made_here(attribute) || is_written_by_program(t, type, name)) return;
  lift::Source* source = t.lifter.classes->attribute_source(type, name);
  if (source == nullptr) return;
  t.tree->guard(source, {lift::GuardKind::kType, Ref::share(reinterpret_cast<PyObject*>(kind))});
  if (is_python && !is_tensor(attribute)) t.lifter.classes->use_special_methods(kind);
}

// Whether it is a data descriptor, which takes precedence over the instance dict.
bool comes_first(Tracer& t, Borrowed attribute, PyTypeObject* type, Borrowed name) {
  use_descriptor(t, attribute, type, name);
  return is_data_descriptor(attribute);
}

// object.__getattribute__: data descriptor, instance dict, other descriptor, class attribute.
Ref get_generic(Tracer& t, Borrowed owner, Borrowed name, bool* absent) {
  PyTypeObject* type = owner.type();
  lift::Known* known = t.lifter.known(owner);
  const bool preexisting = known != nullptr && known->instance;
  if (preexisting && cpython::is_thread_local(type)) {
    if (equals(name, "__dict__")) return Ref(t.lifter.namespaces->attributes(owner)->copy);
    // threading.local itself looks there first.
    if (lift::layout_base(type) == type) {
      if (Ref value = t.lifter.containers->dict_item(*t.lifter.namespaces->attributes(owner), name)) return value;
    }
  }
  // The look-up in the instance dict may run an __eq__, which may remove it from the class.
  const Ref attribute = Ref::share(t.lifter.classes->attribute(type, name));
  if (attribute && comes_first(t, attribute, type, name)) {
    if (preexisting && Py_IS_TYPE(attribute.get(), &PyGetSetDescr_Type) && equals(name, "__dict__")) {
      if (lift::Shadow* attributes = t.lifter.namespaces->attributes(owner)) return Ref(attributes->copy);
    }
    if (preexisting && Py_IS_TYPE(attribute.get(), &PyGetSetDescr_Type) && equals(name, "__class__")) {
      return Ref::share(reinterpret_cast<PyObject*>(type));
    }
    // Guards create weak references themselves.
    if (preexisting && Py_IS_TYPE(attribute.get(), &PyGetSetDescr_Type) && equals(name, "__weakref__"))
      stop(report::Reason::opaque_object, "the weak references to an object");
    const bool is_member = Py_IS_TYPE(attribute.get(), &PyMemberDescr_Type);
    if ((preexisting && (is_member || Py_IS_TYPE(attribute.get(), &PyGetSetDescr_Type))) ||
        (is_member && known != nullptr && known->shadow != nullptr)) {
      Ref value = t.lifter.fields->load(owner, name, attribute);
      *absent = !value;
      return value;
    }
    try {
      return bind_descriptor(t, attribute, owner, type, t.lifter.classes->attribute_source(type, name));
    } catch (const PyError&) {
      if (t.result.stopped || !PyErr_ExceptionMatches(PyExc_AttributeError)) throw;
      *absent = true;
      return {};
    }
  }
  if (preexisting) {
    if (lift::Shadow* attributes = t.lifter.namespaces->attributes(owner)) {
      if (Ref value = t.lifter.containers->dict_item(*attributes, name)) return value;
    }
  } else if (PyObject** dict = _PyObject_GetDictPtr(owner.get()); dict != nullptr && *dict != nullptr) {
    if (PyObject* value = PyDict_GetItemWithError(*dict, name.get())) return Ref::share(value);
    if (PyErr_Occurred()) throw PyError();
  }
  if (attribute) {
    try {
      return bind_descriptor(t, attribute, owner, type, t.lifter.classes->attribute_source(type, name),
                             is_written_by_program(t, type, name));
    } catch (const PyError&) {
      if (t.result.stopped || !PyErr_ExceptionMatches(PyExc_AttributeError)) throw;
    }
  }
  *absent = true;
  return {};
}

// Binds an attribute found on a class to `owner` (null: to the class itself). Without a source, it belongs to a class
// that the trace made.
Ref bind_descriptor(Tracer& t, Borrowed attribute, Borrowed owner, PyTypeObject* type, lift::Source* source,
                    bool written) {
  PyTypeObject* kind = attribute.type();
  const Ref held = Ref::share(attribute);  // its __get__ may remove it from the class
  const bool fixed = written || source == nullptr || t.lifter.made_here(attribute);
  auto function_of = [&](Borrowed function) {
    return fixed || !function ? Ref::share(function) : t.lifter.lift(function, t.lifter.constant(function));
  };
  if (PyFunction_Check(attribute.get())) {
    Ref function = function_of(attribute);
    return owner ? checked(PyMethod_New(function.get(), owner.get())) : std::move(function);
  }
  if (kind == &PyProperty_Type && owner) {
    Ref getter = checked(PyObject_GetAttrString(attribute.get(), "fget"));
    if (PyFunction_Check(getter.get())) {
      PyObject* arguments[] = {nullptr, owner.get()};
      return call_function(t, {function_of(getter), arguments + 1, 1, {}});
    }
  }
  if (owner && !fixed && is_cached_property(kind)) return get_cached_property(t, attribute, owner, source);
  descrgetfunc get = kind->tp_descr_get;
  if (get == nullptr) return fixed ? Ref::share(attribute) : t.lifter.lift(attribute, source);
  // The __get__ of a descriptor of a Python class runs as a traced frame, on the lifted descriptor itself.
  const bool python_descriptor = (kind->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0;
  if (python_descriptor && !fixed) {
    t.lifter.classes->use_special_methods(kind);
    if (Borrowed(t.lifter.lift(attribute, source)) != attribute)
      stop(report::Reason::cannot_lift, "a descriptor that needs a private copy");
  }
  Ref value = checked(get(attribute.get(), owner.get(), reinterpret_cast<PyObject*>(type)));
  if (owner && lift::is_numpy_number(owner.get()) && !lift::is_plain(value.get()) && !PyCFunction_Check(value.get()) &&
      !Py_IS_TYPE(value.get(), &_PyMethodWrapper_Type)) {
    stop(report::Reason::native_call, std::string("an attribute of ") + type->tp_name);
  }
  if (fixed || python_descriptor) return value;
  // The fields of an object that the trace made, its __dict__ among them, belong to the trace too.
  const bool is_field = kind == &PyGetSetDescr_Type || kind == &PyMemberDescr_Type;
  if (is_field && owner && t.lifter.known(owner) == nullptr && !PyType_Check(value.get())) return value;
  if (PyMethod_Check(value.get())) {
    (void)function_of(PyMethod_GET_FUNCTION(value.get()));  // a class method's code is guarded like any other
    return value;
  }
  if (PyFunction_Check(value.get())) return function_of(value);
  if (PyCFunction_Check(value.get()) || Py_IS_TYPE(value.get(), &_PyMethodWrapper_Type)) return value;
  // What a C descriptor reads from an object that the trace made belongs to the trace: a slot, its __dict__.
  if (owner && (t.lifter.known(owner) == nullptr || PyTuple_Check(owner.get()))) return value;
  // ... and what it reads from a pre-existing object has no source that could be followed again.
  if (owner && !PyType_Check(owner.get()) && kind != &PyStaticMethod_Type)
    stop(report::Reason::native_call, std::string("a descriptor of type ") + kind->tp_name);
  if (lift::is_plain(value.get())) return value;
  return t.lifter.lift(value, t.lifter.constant(value));
}

// functools.cached_property, without the lock that it takes up to CPython 3.11.
static Ref get_cached_property(Tracer& t, Borrowed property, Borrowed owner, lift::Source* source) {
  Ref lifted = t.lifter.lift(property, source);
  auto field = [&](const char* name) { return get_attribute(t, lifted, checked(PyUnicode_InternFromString(name))); };
  Ref name = field("attrname"), function = field("func");
  if (!PyUnicode_CheckExact(name.get())) stop(report::Reason::native_call, "a cached_property without a name");
  PyObject* arguments[] = {nullptr, owner.get()};
  Ref value = call(t, {function, arguments + 1, 1, {}});
  Ref dict = get_attribute(t, owner, names::__dict__);
  set_item(t, dict, name, value);
  return value;
}

Ref special_method(Tracer& t, Borrowed owner, Borrowed name) {
  if (is_hook_handle(owner)) stop(report::Reason::hook, "its handle is used");
  lift::Known* known = t.lifter.known(owner);
  if (known != nullptr && known->opaque)
    stop(report::Reason::opaque_object, std::string(owner.type()->tp_name) + "." + text_of(name));
  Borrowed attribute = t.lifter.classes->attribute(owner.type(), name);
  if (!attribute) return {};
  if (name.get() == names::__exit__ && t.current_frame != nullptr) {
    t.keep_alive.push_back(Ref::share(reinterpret_cast<PyObject*>(cpython::code_of(t.current_frame))));
    note_manager(cpython::code_of(t.current_frame), t.current_index, owner);
  }
  if (known != nullptr && known->instance && Py_IS_TYPE(attribute.get(), &PyMemberDescr_Type))
    return t.lifter.fields->load(owner, name, attribute);
  return bind_descriptor(t, attribute, owner, owner.type(), t.lifter.classes->attribute_source(owner.type(), name));
}

bool is_written_by_program(Tracer& t, PyTypeObject* type, Borrowed name) {
  PyObject* value;
  return t.lifter.classes->find_written(type, name, &value);
}

}  // namespace alternator::trace
