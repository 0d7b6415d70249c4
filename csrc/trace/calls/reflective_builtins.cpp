// Builtins that inspect objects, classes and process state: hash, getattr, type, vars, __reduce_ex__ ...
#include "trace/calls/reflective_builtins.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/attribute_writes.h"
#include "trace/opcodes/attributes.h"
#include "trace/opcodes/class_creation.h"
#include "trace/opcodes/items.h"
#include "trace/opcodes/raised_exceptions.h"
#include "trace/soundness/address_identity.h"
#include "trace/symbolic/unbacked_arithmetic.h"
#include "trace/torch/torch_calls.h"
#include "trace/torch/torch_function_methods.h"

#include "cpython/objects.h"
#include "cpython/thread_locals.h"
#include "cpython/version.h"
#include "fake/numpy_scalar_input.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/layouts.h"
#include "lift/lifting/namespaces.h"
#include "py/import.h"
#include "py/lasting.h"
#include "py/names.h"
#include "trace/calls/markers.h"
#include "trace/calls/natives.h"
#include "trace/torch/tensor_attributes.h"

namespace alternator::trace {

namespace {

// object.__hash__, tuple.__hash__, ...
bool is_hash_slot(Borrowed descriptor) {
  return PyUnicode_CompareWithASCIIString(reinterpret_cast<PyDescrObject*>(descriptor.get())->d_name, "__hash__") == 0;
}

}  // namespace

// sys.exception, which came with CPython 3.11.
static PyObject* sys_exception() {
  static constinit Lasting<PyObject*> lasting;
  return lasting.get([] { return checked(PyObject_GetAttrString(import_module("sys").get(), "exception")).release(); });
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

// The __reduce__ of iterators and methods names a builtin, and itself looks it up in the real builtins.
static void check_builtins(lift::Lifter& lifter, const std::string& what) {
  lift::Shadow& builtins = lifter.namespaces->of_globals(PyEval_GetBuiltins());
  bool same =
      builtins.deleted_keys.empty() && PyDict_GET_SIZE(builtins.copy.get()) == PyDict_GET_SIZE(builtins.original.get());
  for (const char* text : {"iter", "reversed", "getattr"}) {
    if (!same) break;
    Ref name = checked(PyUnicode_InternFromString(text));
    Ref seen = lifter.containers->dict_item(builtins, name);
    same = seen && seen.get() == PyDict_GetItemWithError(builtins.original.get(), name.get());
  }
  if (!same) stop(report::Reason::native_call, what + " after a write to the builtins");
}

Ref reduce(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t count, const std::string& name) {
  const char* found = nullptr;
  for (const char* reader : {"__reduce_ex__", "__reduce__", "__getstate__", "__dir__", "__sizeof__"}) {
    if (name.size() >= strlen(reader) && name.compare(name.size() - strlen(reader), std::string::npos, reader) == 0)
      found = reader;
  }
  if (found == nullptr) return {};
  if (strncmp(found, "__reduce", 8) == 0) check_builtins(t.lifter, name);
  Ref self;
  if (PyCFunction_Check(callable.get())) {
    self = Ref::share(PyCFunction_GET_SELF(callable.get()));
  } else if (count > 0) {
    self = Ref::share(arguments[0]);
    arguments++, count--;
  }
  if (!self) stop(report::Reason::native_call, name);
  lift::Known* known = t.lifter.known(self);
  if (known == nullptr || known->shadow != nullptr) return {};
  if (PyCFunction_Check(self.get()) && known->source->access == lift::Access::kConstant)
    return {};  // it is reduced to its name
  // Native code would read the state of the pre-existing object itself. If that is a __dict__ and nothing else, the
  // result is built here.
  PyTypeObject* type = self.type();
  const bool ordinary = known->instance && lift::has_plain_layout(type) &&
                        lift::layout_base(type) == &PyBaseObject_Type &&
                        type->tp_basicsize <= PyBaseObject_Type.tp_basicsize + 2 * Py_ssize_t(sizeof(void*)) &&
                        strcmp(found, "__reduce_ex__") == 0 && count == 1;
  bool asks = false;  // user code computes the state
  for (const char* hook : {"__getstate__", "__getnewargs__", "__getnewargs_ex__", "__reduce__", "__slots__"}) {
    Ref hook_name = checked(PyUnicode_InternFromString(hook));
    Borrowed own = ordinary ? Borrowed(t.lifter.classes->attribute(type, hook_name)) : Borrowed();
    if (ordinary && own && PyFunction_Check(own.get()) && strcmp(hook, "__getstate__") == 0) {
      asks = true;
      continue;
    }
    if (!ordinary || (own && !Py_IS_TYPE(own.get(), &PyMethodDescr_Type))) stop(report::Reason::native_call, name);
  }
  if (PyLong_AsLong(arguments[0]) < 2) stop(report::Reason::native_call, name);
  Ref make = checked(PyObject_GetAttrString(import_module("copyreg").get(), "__newobj__"));
  make = t.lifter.lift(make, t.lifter.constant(make));
  Ref state = Ref::share(Py_None);
  if (asks) {
    state = call(t, get_attribute(t, self, checked(PyUnicode_InternFromString("__getstate__"))), nullptr, 0, {});
    t.lifter.escape(state);
  } else if (lift::Shadow* attributes = t.lifter.namespaces->attributes(self)) {
    t.lifter.containers->lift_whole(*attributes);
    if (PyDict_GET_SIZE(attributes->copy.get()) > 0) state = Ref::share(attributes->copy.get());
  }
  Ref of_class = checked(PyTuple_Pack(1, reinterpret_cast<PyObject*>(type)));
  return checked(PyTuple_Pack(5, make.get(), of_class.get(), state.get(), Py_None, Py_None));
}

// Pre-existing classes: guards call __subclasses__() again and compare one by one.
Ref subclasses_of(Tracer& t, Borrowed cls) {
  if (t.lifter.classes->has_new_subclasses(cls))
    stop(report::Reason::native_call, "__subclasses__ of a class with new ones");
  Ref query = checked(PyObject_GetAttrString(cls.get(), "__subclasses__"));
  Ref found = checked(PyObject_CallNoArgs(query.get()));
  if (!PyCFunction_Check(query.get()) || !PyList_CheckExact(found.get()))
    stop(report::Reason::native_call, "a __subclasses__ that the class overrides");
  lift::Source* source = t.tree->child(t.lifter.constant(query), lift::Access::kQuery);
  t.tree->guard(source, {lift::GuardKind::kLength, {}, {}, PyList_GET_SIZE(found.get())});
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(found.get()); i++) {
    Ref one = t.lifter.lift(PyList_GET_ITEM(found.get(), i), t.tree->child(source, lift::Access::kIndex, {}, i));
    check_status(PyList_SetItem(found.get(), i, one.release()));
  }
  return found;
}

// What hash() makes of the result of a __hash__ in Python. Unlike the slot, this can tell whether it is an identity.
static Ref python_hash(Ref answer) {
  if (is_identity(answer)) return answer;
  if (!PyLong_Check(answer.get())) {
    PyErr_SetString(PyExc_TypeError, "__hash__ method should return an integer");
    throw PyError();
  }
  Py_hash_t hash = PyLong_AsSsize_t(answer.get());
  if (hash == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    hash = PyLong_Type.tp_hash(answer.get());
  }
  if (hash == -1) hash = -2;
  const bool is_known = PyLong_CheckExact(answer.get()) || PyBool_Check(answer.get());
  return is_known ? checked(PyLong_FromSsize_t(hash)) : make_identity(hash);
}

// The trace keeps an object alive whose address was taken, so that no other object gets that address: the callback of a
// weak reference to it would not be called.
static void check_no_weakref_callback(const lift::Lifter& lifter, Borrowed object) {
  if (lifter.known(object) != nullptr || !PyType_SUPPORTS_WEAKREFS(object.type())) return;
  auto** first = reinterpret_cast<PyWeakReference**>(PyObject_GET_WEAKREFS_LISTPTR(object.get()));
  for (PyWeakReference* reference = *first; reference != nullptr; reference = reference->wr_next) {
    if (reference->wr_callback != nullptr)
      stop(report::Reason::identity_number, "there is a weak reference with a callback to the object");
  }
}

// `callable`: hash, or a __hash__ slot, bound or not.
Ref hash_of(Tracer& t, Borrowed value, Borrowed callable) {
  t.lifter.escape(value);
  if (!is_identity(value)) check_use(t, value, "hash");
  HashKind kind = hash_kind(t.lifter, value);
  const bool bound = Py_IS_TYPE(callable.get(), &_PyMethodWrapper_Type);
  // A base class's slot, under a user-defined __hash__.
  if (kind == HashKind::kPython && callable.get() != Natives::table().hash) {
    PyObject* v = value.get();
    kind = PyUnicode_Check(v) || PyLong_Check(v) || PyFloat_Check(v) || PyBytes_Check(v) ? HashKind::kValue
                                                                                         : HashKind::kAddress;
  }
  if (kind == HashKind::kNan) stop(report::Reason::identity_number, "the hash of a NaN");
  if (kind == HashKind::kPython && !bound) {
    Borrowed own = _PyType_Lookup(value.type(), checked(PyUnicode_InternFromString("__hash__")).get());
    if (own && PyFunction_Check(own.get())) return python_hash(checked(PyObject_CallOneArg(own.get(), value.get())));
  }
  Ref number = checked(bound ? PyObject_CallNoArgs(callable.get()) : PyObject_CallOneArg(callable.get(), value.get()));
  // A user-defined __hash__ may be computed from identities.
  if (kind == HashKind::kValue || (kind == HashKind::kPython && identities_made() == 0)) return number;
  check_no_weakref_callback(t.lifter, value);
  t.keep_alive.push_back(Ref::share(value));
  return make_identity(PyLong_AsSsize_t(number.get()));
}

Ref call_reflective(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t count, bool* handled) {
  const Natives& natives = Natives::table();
  auto is = [&](PyObject* native, size_t least, size_t most) {
    const bool match = callable.get() == native && count >= least && count <= most;
    *handled = *handled || match;
    return match;
  };
  const bool named = count >= 2 && PyUnicode_Check(arguments[1]);
  auto lacks = [&] {
    const bool absent = !t.stopped && PyErr_ExceptionMatches(PyExc_AttributeError);
    if (absent) PyErr_Clear();
    return absent;
  };
  if (named && is(natives.getattr, 2, 3)) {
    try {
      return get_attribute(t, arguments[0], arguments[1]);
    } catch (const PyError&) {
      if (count == 3 && lacks()) return Ref::share(arguments[2]);
      throw;
    }
  }
  if (named && is(natives.hasattr, 2, 2)) {
    if (reads_weakref_slot(t.lifter, arguments[0], arguments[1])) return Ref::share(Py_True);
    try {
      (void)get_attribute(t, arguments[0], arguments[1]);
      return Ref::share(Py_True);
    } catch (const PyError&) {
      if (lacks()) return Ref::share(Py_False);
      throw;
    }
  }
  if (named && is(natives.setattr, 3, 3)) {
    set_attribute(t, arguments[0], arguments[1], arguments[2]);
    return Ref::share(Py_None);
  }
  if (named && is(natives.delattr, 2, 2)) {
    set_attribute(t, arguments[0], arguments[1], {});
    return Ref::share(Py_None);
  }
  if (is(natives.id, 1, 1)) {
    if (fake::is_numpy_scalar_input(arguments[0]))
      stop(report::Reason::unknown_number, "id");  // two inputs may be one object
    if (fake::is_symbol(arguments[0]) &&
        t.lifter.known(arguments[0]) != nullptr)  // it may also be read as a plain scalar
      stop(report::Reason::unknown_number, "id");
    check_no_weakref_callback(t.lifter, arguments[0]);
    t.keep_alive.push_back(Ref::share(arguments[0]));  // its address must not be reused
    Ref identity = make_identity(reinterpret_cast<Py_ssize_t>(arguments[0]));
    // Plain values are guarded by value, not by identity.
    PyObject* key = t.keep_alive.emplace_back(identity).get();
    (lift::is_plain(arguments[0]) ? t.identities->unguarded : t.identities->guarded)[key] = arguments[0];
    return identity;
  }
  if (is(natives.recursion_limit, 0, 0) || is(natives.abc_token, 0, 0)) return query(t, callable);
  for (PyObject* asked : natives.queries) {
    if (is(asked, 0, 0)) return query(t, callable);
  }
  const bool wants_exception = is(sys_exception(), 0, 0);
  if (wants_exception || is(natives.exc_info, 0, 0)) {
    Ref info = checked(PyObject_CallNoArgs(natives.exc_info));
    const auto answer = [&](Ref all) { return wants_exception ? Ref::share(PyTuple_GET_ITEM(all.get(), 1)) : all; };
    if (t.exceptions->handled_before && PyTuple_GET_ITEM(info.get(), 1) == t.exceptions->handled_before.get())
      stop(report::Reason::native_call, "the exception that the caller handles");
    if (Borrowed exception = PyTuple_GET_ITEM(info.get(), 1); t.lifter.known(exception) != nullptr) {
      Ref type = get_attribute(t, exception, names::__class__);
      Ref traceback = get_attribute(t, exception, names::__traceback__);
      return answer(checked(PyTuple_Pack(3, type.get(), exception.get(), traceback.get())));
    }
    if (PyTuple_GET_ITEM(info.get(), 1) == Py_None) {  // the caller handles none either
      lift::Source* source = t.tree->child(t.lifter.constant(natives.exc_info), lift::Access::kQuery);
      t.tree->guard(source, {lift::GuardKind::kEquals, Ref(info)});
    }
    return answer(std::move(info));
  }
  if (is(natives.hash, 1, 1) ||
      (Py_IS_TYPE(callable.get(), &PyWrapperDescr_Type) && is_hash_slot(callable) && (*handled = count == 1))) {
    return hash_of(t, arguments[0], callable);
  }
  if (is(natives.get_ident, 0, 0)) return make_identity(static_cast<Py_ssize_t>(PyThread_get_thread_ident()));
  // The recording mode is on torch's mode stack: the program does not see it.
  if (is(natives.mode_stack_length, 0, 0) || is(natives.mode_enabled, 0, 0)) {
    const int64_t own = at::impl::PythonTorchFunctionTLS::stack_len() - 1;
    if (callable.get() == natives.mode_enabled)
      return Ref::share(own > 0 && !at::impl::torch_function_all_disabled() ? Py_True : Py_False);
    return checked(PyLong_FromLongLong(own));
  }
  if (is(natives.dir, 1, 1)) return t.classes->names_of(arguments[0]);
  if (is(natives.vars, 1, 1)) {
    try {
      return get_attribute(t, arguments[0], names::__dict__);
    } catch (const PyError&) {
      if (t.stopped || PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw;
      PyErr_SetString(PyExc_TypeError, "vars() argument must have __dict__ attribute");
      throw;
    }
  }
  if (is(natives.len, 1, 1)) {
    lift::Known* known = t.lifter.known(arguments[0]);
    if (known != nullptr && known->shadow != nullptr && !known->shadow->whole)
      t.lifter.containers->guard_length(*known->shadow);
    check_use(t, arguments[0], "len");
    if (t.recorder.has_symbols() && graph::is_tensor(arguments[0]) && !t.torch_functions->is_overridden(arguments[0])) {
      Ref zero = checked(PyLong_FromLong(0));
      PyObject* first[] = {nullptr, arguments[0], zero.get()};
      if (fake::unpack(arguments[0]).dim() > 0)
        return call_torch(t, graph::torch_types().tensor_size, first + 1, 2, {});
    }
    if (may_hold_symbol(t, arguments[0]) && !has_native_length(arguments[0])) {
      // The result of a user-defined __len__ must be checked before native code sees it.
      Ref method = special_method(t, arguments[0], checked(PyUnicode_InternFromString("__len__")));
      Ref length = method ? call(t, method, arguments + 1, 0, {}) : Ref();
      if (!length || !PyLong_CheckExact(length.get()) || _PyLong_Sign(length.get()) < 0)
        stop(report::Reason::unknown_number, "len");
      return length;
    }
    return checked(PyLong_FromSsize_t([&] {
      const Py_ssize_t length = PyObject_Length(arguments[0]);
      if (length < 0) throw PyError();
      return length;
    }()));
  }
  bool absent = false;
  // object's methods on a threading.local see no thread's attributes.
  if (count >= 1 && cpython::is_thread_local(Py_TYPE(arguments[0])) &&
      (is(natives.object_getattribute, 2, 2) || is(natives.object_setattr, 3, 3) || is(natives.object_delattr, 2, 2))) {
    stop(report::Reason::native_call, native_name(callable));
  }
  if (named && is(natives.object_getattribute, 2, 2)) {
    Ref value = get_generic(t, arguments[0], arguments[1], &absent);
    if (!absent) return value;
    if (!PyErr_Occurred()) {
      PyErr_Format(PyExc_AttributeError, "'%.50s' object has no attribute '%U'", Py_TYPE(arguments[0])->tp_name,
                   arguments[1]);
      Ref error = cpython::take_raised();
      check_status(PyObject_SetAttrString(error.get(), "name", arguments[1]));
      check_status(PyObject_SetAttrString(error.get(), "obj", arguments[0]));
      cpython::set_raised(std::move(error));
    }
    throw PyError();
  }
  if (named && count >= 1 && PyType_Check(arguments[0]) &&
      (is(natives.type_setattr, 3, 3) || is(natives.type_delattr, 2, 2))) {
    if (count == 3) t.lifter.escape(arguments[2]);
    store_on_class(t, reinterpret_cast<PyTypeObject*>(arguments[0]), arguments[1],
                   count == 3 ? Borrowed(arguments[2]) : Borrowed());
    return Ref::share(Py_None);
  }
  lift::Known* known = count >= 1 ? t.lifter.known(arguments[0]) : nullptr;
  if (named && known != nullptr && known->instance &&
      (is(natives.object_setattr, 3, 3) || is(natives.object_delattr, 2, 2))) {
    set_generic(t, arguments[0], arguments[1], count == 3 ? Borrowed(arguments[2]) : Borrowed());
    return Ref::share(Py_None);
  }
  const bool sets = (callable.get() == natives.object_setattr && count == 3) ||
                    (callable.get() == natives.object_delattr && count == 2);
  if (named && sets &&
      set_member_of_container(t.lifter, arguments[0], arguments[1], count == 3 ? Borrowed(arguments[2]) : Borrowed())) {
    *handled = true;
    return Ref::share(Py_None);
  }
  if (Py_IS_TYPE(callable.get(), &_PyMethodWrapper_Type)) {  // super().__setattr__(name, value)
    Ref name = checked(PyObject_GetAttrString(callable.get(), "__name__"));
    Ref self = checked(PyObject_GetAttrString(callable.get(), "__self__"));
    Ref owner = checked(PyObject_GetAttrString(callable.get(), "__objclass__"));
    if (count == 0 && PyUnicode_CompareWithASCIIString(name.get(), "__hash__") == 0) {
      *handled = true;
      return hash_of(t, self, callable);
    }
    if (owner.get() == reinterpret_cast<PyObject*>(&PyBaseObject_Type)) {
      PyObject* with_self[] = {self.get(), count > 0 ? arguments[0] : nullptr, count > 1 ? arguments[1] : nullptr};
      for (PyObject* native : {natives.object_getattribute, natives.object_setattr, natives.object_delattr}) {
        Ref native_name = checked(PyObject_GetAttrString(native, "__name__"));
        if (PyUnicode_Compare(name.get(), native_name.get()) == 0)
          return call_reflective(t, native, with_self, count + 1, handled);
      }
    }
    if (owner.get() == reinterpret_cast<PyObject*>(&PyType_Type)) {  // of a metaclass
      PyObject* with_self[] = {self.get(), count > 0 ? arguments[0] : nullptr, count > 1 ? arguments[1] : nullptr};
      for (PyObject* native : {natives.type_setattr, natives.type_delattr}) {
        Ref native_name = checked(PyObject_GetAttrString(native, "__name__"));
        if (PyUnicode_Compare(name.get(), native_name.get()) == 0)
          return call_reflective(t, native, with_self, count + 1, handled);
      }
    }
  }
  if (PyCFunction_Check(callable.get()) && PyCFunction_GET_SELF(callable.get()) != nullptr && count >= 1 &&
      count <= 2 && PyDict_CheckExact(PyCFunction_GET_SELF(callable.get())) &&
      strcmp(callable.as<PyCFunctionObject>()->m_ml->ml_name, "get") == 0) {
    lift::Known* dict = t.lifter.known(PyCFunction_GET_SELF(callable.get()));
    if (dict != nullptr && dict->shadow != nullptr && !dict->shadow->whole && lift::is_plain(arguments[0]) &&
        !lift::is_nan(arguments[0])) {
      *handled = true;
      Ref value = t.lifter.containers->dict_item(*dict->shadow, arguments[0]);
      return value ? std::move(value) : Ref::share(count > 1 ? arguments[1] : Py_None);
    }
  }
  return {};
}

}  // namespace alternator::trace
