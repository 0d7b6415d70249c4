// Builtins that inspect objects, frames and process state: id, hash, len, dir, sys.exc_info, __reduce_ex__ ...
#include "trace/calls/reflective_builtins.h"
#include "trace/calls/call_dispatch.h"
#include "trace/calls/handlers.h"
#include "trace/core/frame_access.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/attributes.h"
#include "trace/opcodes/class_creation.h"
#include "trace/opcodes/items.h"
#include "trace/opcodes/iteration.h"
#include "trace/opcodes/raised_exceptions.h"
#include "trace/soundness/address_identity.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/symbolic/unbacked_arithmetic.h"
#include "trace/torch/torch_calls.h"
#include "trace/torch/torch_function_methods.h"

#include "cpython/objects.h"
#include "cpython/version.h"
#include "fake/numpy_scalar_input.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/layouts.h"
#include "lift/lifting/lazy_objects.h"
#include "lift/lifting/namespaces.h"
#include "py/import.h"
#include "py/lasting.h"
#include "py/names.h"
#include "trace/calls/natives.h"

namespace alternator::trace {

Ref query(Tracer& t, Borrowed builtin) {
  Ref answer = checked(PyObject_CallNoArgs(builtin.get()));
  if (!lift::is_plain(answer.get())) stop(report::Reason::native_call, native_name(builtin));
  lift::Source* source = t.tree->child(t.lifter.constant(builtin), lift::Access::kQuery);
  t.tree->guard(source, {lift::GuardKind::kEquals, Ref(answer)});
  return answer;
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

Ref reduce(Tracer& t, Borrowed callable, NativeFlags flags, PyObject* const* arguments, size_t count) {
  if (!flags.has(native::kReadsState)) return {};
  const std::string name = native_name(callable);
  if (flags.has(native::kReduces)) check_builtins(t.lifter, name);
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
                        is_same_builtin(callable, Natives::table().object_reduce_ex) && count == 1;
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
    state = call(t, {get_attribute(t, self, checked(PyUnicode_InternFromString("__getstate__"))), nullptr, 0, {}});
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
      stop(report::Reason::object_id, "there is a weak reference with a callback to the object");
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
  if (kind == HashKind::kNan) stop(report::Reason::object_id, "the hash of a NaN");
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

namespace {

Ref call_id(Tracer& t, const Call& call) {
  if (!call.has_positional(1)) return {};
  PyObject* const object = call.arguments[0];
  // Two numpy scalar inputs may be one object; a symbol may also be read as a plain scalar, which is another object.
  if (fake::is_numpy_scalar_input(object) || t.backed->is_backed(object) ||
      (fake::is_symbol(object) && t.lifter.known(object) != nullptr))
    stop(report::Reason::unbacked_value, "id");
  check_no_weakref_callback(t.lifter, object);
  t.keep_alive.push_back(Ref::share(object));  // its address must not be reused
  t.backed->fix_copy(object);
  Ref identity = make_identity(reinterpret_cast<Py_ssize_t>(object));
  // Plain values are guarded by value, not by identity.
  PyObject* key = t.keep_alive.emplace_back(identity).get();
  (lift::is_plain(object) ? t.identities->unguarded : t.identities->guarded)[key] = object;
  return identity;
}

Ref call_hash(Tracer& t, const Call& call) {
  if (call.has_positional(1)) t.backed->make_plain(call.arguments[0]);
  return call.has_positional(1) ? hash_of(t, call.arguments[0], call.callable) : Ref();
}

// An int or a setting of the process, guarded by querying again.
Ref call_query(Tracer& t, const Call& call) { return call.has_positional(0) ? query(t, call.callable) : Ref(); }

// sys.exc_info()
Ref exception_info(Tracer& t) {
  const Natives& natives = Natives::table();
  Ref info = checked(PyObject_CallNoArgs(natives.exc_info));
  Borrowed exception = PyTuple_GET_ITEM(info.get(), 1);
  if (t.exceptions->handled_before && exception == Borrowed(t.exceptions->handled_before))
    stop(report::Reason::native_call, "the exception that the caller handles");
  if (t.lifter.known(exception) != nullptr) {
    Ref type = get_attribute(t, exception, names::__class__);
    Ref traceback = get_attribute(t, exception, names::__traceback__);
    return checked(PyTuple_Pack(3, type.get(), exception.get(), traceback.get()));
  }
  if (exception.get() == Py_None) {  // the caller handles none either
    lift::Source* source = t.tree->child(t.lifter.constant(natives.exc_info), lift::Access::kQuery);
    t.tree->guard(source, {lift::GuardKind::kEquals, Ref(info)});
  }
  return info;
}

Ref call_thread_ident(Tracer&, const Call& call) {
  return call.has_positional(0) ? make_identity(static_cast<Py_ssize_t>(PyThread_get_thread_ident())) : Ref();
}

Ref call_len(Tracer& t, const Call& call) {
  if (!call.has_positional(1)) return {};
  Borrowed object = call.arguments[0];
  lift::Known* known = t.lifter.known(object);
  if (known != nullptr && known->shadow != nullptr && !known->shadow->whole)
    t.lifter.containers->guard_length(*known->shadow);
  check_use(t, object, "len");
  if (t.recorder.has_symbols() && graph::is_tensor(object) && !t.torch_functions->is_overridden(object)) {
    Ref zero = checked(PyLong_FromLong(0));
    PyObject* first[] = {nullptr, object.get(), zero.get()};
    if (fake::unpack(object.get()).dim() > 0)
      return call_torch(t, {graph::torch_types().tensor_size, first + 1, 2, {}});
  }
  if (!has_native_length(object) && may_hold_symbol(t, object)) {
    // The result of a user-defined __len__ must be checked before native code sees it.
    Ref method = special_method(t, object, checked(PyUnicode_InternFromString("__len__")));
    Ref length = method ? trace::call(t, {method, call.arguments + 1, 0, {}}) : Ref();
    if (!length || !PyLong_CheckExact(length.get()) || _PyLong_Sign(length.get()) < 0)
      stop(report::Reason::unbacked_value, "len");
    return length;
  }
  const Py_ssize_t length = PyObject_Length(object.get());
  if (length < 0) throw PyError();
  return checked(PyLong_FromSsize_t(length));
}

// The recording mode is on torch's mode stack: the program does not see it.
int64_t modes_of_program() { return at::impl::PythonTorchFunctionTLS::stack_len() - 1; }

// d.get(key) of a dict that is not lifted whole: one item is.
Ref call_dict_get(Tracer& t, const Call& call) {
  if (!PyCFunction_Check(call.callable.get()) || !call.has_positional(1, 2)) return {};
  PyObject* const self = PyCFunction_GET_SELF(call.callable.get());
  PyObject* const key = call.arguments[0];
  if (self == nullptr || !PyDict_CheckExact(self)) return {};
  lift::Known* dict = t.lifter.known(self);
  if (dict == nullptr || dict->shadow == nullptr || dict->shadow->whole || !lift::is_plain(key) || lift::is_nan(key))
    return {};
  Ref value = t.lifter.containers->dict_item(*dict->shadow, key);
  return value ? std::move(value) : Ref::share(call.positional > 1 ? call.arguments[1] : Py_None);
}

// Builtins about the frame that they are called from.
Ref call_about_frame(Tracer& t, const Call& call) { return t.frames->call(call); }

Ref call_dir(Tracer& t, const Call& call) {
  return call.has_positional(1) ? t.classes->names_of(call.arguments[0]) : call_about_frame(t, call);
}

Ref call_next(Tracer& t, const Call& call) {
  if (!call.has_positional(1, 2) || !t.lifter.iterators->is_preexisting(call.arguments[0])) return {};
  Ref value = next_of_preexisting(t, call.arguments[0]);
  if (value) return Ref::share(t.lifter.lazy->read(value));
  if (call.positional == 2) return Ref::share(call.arguments[1]);
  PyErr_SetNone(PyExc_StopIteration);
  throw PyError();
}

}  // namespace

bool register_reflective_builtins(Handlers& handlers) {
  const Natives& natives = Natives::table();
  handlers.add(natives.id, call_id);
  handlers.add(natives.hash, call_hash);
  handlers.add_slot("__hash__", call_hash);
  handlers.add(natives.len, call_len);
  handlers.add(natives.next, call_next);
  handlers.add(natives.dir, call_dir);
  handlers.add(natives.get_ident, call_thread_ident);
  handlers.add(natives.dict_get, call_dict_get);
  for (PyObject* builtin : natives.queries) handlers.add(builtin, call_query);
  handlers.add("torch._C", "_len_torch_function_stack", [](Tracer&, const Call& call) {
    return call.has_positional(0) ? checked(PyLong_FromLongLong(modes_of_program())) : Ref();
  });
  handlers.add("torch._C", "_is_torch_function_mode_enabled", [](Tracer&, const Call& call) {
    if (!call.has_positional(0)) return Ref();
    return Ref::share(modes_of_program() > 0 && !at::impl::torch_function_all_disabled() ? Py_True : Py_False);
  });
  handlers.add("sys", "exc_info",
               [](Tracer& t, const Call& call) { return call.has_positional(0) ? exception_info(t) : Ref(); });
  handlers.add("sys", "exception", [](Tracer& t, const Call& call) {
    return call.has_positional(0) ? Ref::share(PyTuple_GET_ITEM(exception_info(t).get(), 1)) : Ref();
  });
  handlers.add("builtins", "locals globals eval exec", call_about_frame);
  handlers.add("sys", "_getframe _getframemodulename", call_about_frame);
  return true;
}

}  // namespace alternator::trace
