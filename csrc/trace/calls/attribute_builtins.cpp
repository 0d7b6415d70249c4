// getattr() and its like, and the attribute slots of object and type: the rules of the language over private copies.
#include "trace/calls/handlers.h"
#include "trace/calls/natives.h"
#include "trace/core/frame_access.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/attribute_writes.h"
#include "trace/opcodes/attributes.h"
#include "trace/torch/tensor_attributes.h"

#include "cpython/thread_locals.h"
#include "cpython/version.h"
#include "lift/lifting/classes.h"
#include "py/names.h"

namespace alternator::trace {

namespace {

// name is an argument of all of these, the second one.
bool is_named(const Call& call, size_t least, size_t most) {
  return call.has_positional(least, most) && PyUnicode_Check(call.arguments[1]);
}

// The value that a setter was given; null: a deleter.
Borrowed stored_value(const Call& call) { return call.positional == 3 ? Borrowed(call.arguments[2]) : Borrowed(); }

// Clears the AttributeError of the program's that is set; false: it is something else.
bool take_attribute_error(Tracer& t) {
  if (t.result.stopped || PyErr_ExceptionMatches(PyExc_AttributeError) == 0) return false;
  PyErr_Clear();
  return true;
}

Ref call_getattr(Tracer& t, const Call& call) {
  if (!is_named(call, 2, 3)) return {};
  try {
    return get_attribute(t, call.arguments[0], call.arguments[1]);
  } catch (const PyError&) {
    if (call.positional == 3 && take_attribute_error(t)) return Ref::share(call.arguments[2]);
    throw;
  }
}

// Whether __weakref__ is read from a pre-existing object. It exists; which weak references there are cannot be guarded.
static bool reads_weakref_slot(lift::Lifter& lifter, Borrowed owner, Borrowed name) {
  if (PyUnicode_CompareWithASCIIString(name.get(), "__weakref__") != 0 ||
      owner.type()->tp_getattro != PyObject_GenericGetAttr)
    return false;
  const lift::Known* known = lifter.known(owner);
  if (known == nullptr || !known->instance) return false;
  const Borrowed field = lifter.classes->attribute(owner.type(), name);
  return field && Py_IS_TYPE(field.get(), &PyGetSetDescr_Type);
}

Ref call_hasattr(Tracer& t, const Call& call) {
  if (!is_named(call, 2, 2)) return {};
  if (reads_weakref_slot(t.lifter, call.arguments[0], call.arguments[1])) return Ref::share(Py_True);
  try {
    (void)get_attribute(t, call.arguments[0], call.arguments[1]);
    return Ref::share(Py_True);
  } catch (const PyError&) {
    if (take_attribute_error(t)) return Ref::share(Py_False);
    throw;
  }
}

// setattr() and delattr().
Ref call_setattr(Tracer& t, const Call& call) {
  const size_t wanted = call.callable.get() == Natives::table().setattr ? 3 : 2;
  if (!is_named(call, wanted, wanted)) return {};
  set_attribute(t, call.arguments[0], call.arguments[1], stored_value(call));
  return Ref::share(Py_None);
}

Ref call_vars(Tracer& t, const Call& call) {
  if (call.has_positional(0)) return t.frames->call(call);
  if (!call.has_positional(1)) return {};
  try {
    return get_attribute(t, call.arguments[0], names::__dict__);
  } catch (const PyError&) {
    if (t.result.stopped || PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw;
    PyErr_SetString(PyExc_TypeError, "vars() argument must have __dict__ attribute");
    throw;
  }
}

// object's methods on a threading.local see no thread's attributes.
void refuse_thread_local(const Call& call) {
  if (cpython::is_thread_local(Py_TYPE(call.arguments[0])))
    stop(report::Reason::native_call, native_name(call.callable));
}

Ref call_object_getattribute(Tracer& t, const Call& call) {
  if (!call.has_positional(2)) return {};
  refuse_thread_local(call);
  if (!PyUnicode_Check(call.arguments[1])) return {};
  bool absent = false;
  Ref value = get_generic(t, call.arguments[0], call.arguments[1], &absent);
  if (!absent) return value;
  if (!PyErr_Occurred()) {
    PyErr_Format(PyExc_AttributeError, "'%.50s' object has no attribute '%U'", Py_TYPE(call.arguments[0])->tp_name,
                 call.arguments[1]);
    Ref error = cpython::take_raised();
    check_status(PyObject_SetAttrString(error.get(), "name", call.arguments[1]));
    check_status(PyObject_SetAttrString(error.get(), "obj", call.arguments[0]));
    cpython::set_raised(std::move(error));
  }
  throw PyError();
}

// object.__setattr__ and object.__delattr__.
Ref call_object_setattr(Tracer& t, const Call& call) {
  const size_t wanted = call.callable.get() == Natives::table().object_setattr ? 3 : 2;
  if (!call.has_positional(wanted)) return {};
  refuse_thread_local(call);
  if (!PyUnicode_Check(call.arguments[1])) return {};
  Borrowed owner = call.arguments[0], name = call.arguments[1];
  if (const lift::Known* known = t.lifter.known(owner); known != nullptr && known->instance) {
    set_generic(t, owner, name, stored_value(call));
    return Ref::share(Py_None);
  }
  return set_member_of_container(t.lifter, owner, name, stored_value(call)) ? Ref::share(Py_None) : Ref();
}

// type.__setattr__ and type.__delattr__.
Ref call_type_setattr(Tracer& t, const Call& call) {
  const size_t wanted = call.callable.get() == Natives::table().type_setattr ? 3 : 2;
  if (!is_named(call, wanted, wanted) || !PyType_Check(call.arguments[0])) return {};
  if (call.positional == 3) t.lifter.escape(call.arguments[2]);
  store_on_class(t, reinterpret_cast<PyTypeObject*>(call.arguments[0]), call.arguments[1], stored_value(call));
  return Ref::share(Py_None);
}

}  // namespace

bool register_attribute_builtins(Handlers& handlers) {
  const Natives& natives = Natives::table();
  handlers.add(natives.getattr, call_getattr);
  handlers.add(natives.hasattr, call_hasattr);
  handlers.add(natives.setattr, call_setattr);
  handlers.add(natives.delattr, call_setattr);
  handlers.add(natives.vars, call_vars);
  handlers.add(natives.object_getattribute, call_object_getattribute);
  handlers.add(natives.object_setattr, call_object_setattr);
  handlers.add(natives.object_delattr, call_object_setattr);
  handlers.add(natives.type_setattr, call_type_setattr);
  handlers.add(natives.type_delattr, call_type_setattr);
  return true;
}

}  // namespace alternator::trace
