// Calls: Python functions are traced, torch's are recorded, native ones pass the gate.
#include "trace/tracer.h"

#include "graph/errors.h"
#include "py/names.h"
#include "trace/natives.h"
#include "py/lasting.h"

namespace alternator::trace {

namespace {

std::string take_error_text() {
  Ref error = cpython::take_raised();
  Ref text = Ref::steal(PyObject_Str(error.get()));
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  std::string result = std::string(Py_TYPE(error.get())->tp_name) + ": " + (utf8 != nullptr ? utf8 : "?");
  PyErr_Clear();
  return result.substr(0, 300);
}

bool is_type(Borrowed object, const char* name) { return strcmp(object.type()->tp_name, name) == 0; }

// Functions that tell a program whether it is being compiled.
bool is_compiling_query(Borrowed function) {
  static constinit Lasting<const std::vector<PyObject*>*> lasting;
  const std::vector<PyObject*>* queries = lasting.get([] {
    auto* found = new std::vector<PyObject*>;
    for (auto [module, name] :
         {std::pair{"torch.compiler", "is_compiling"}, std::pair{"torch.compiler", "is_dynamo_compiling"},
          std::pair{"torch._utils", "is_compiling"}, std::pair{"torch._dynamo.external_utils", "is_compiling"}}) {
      PyObject* loaded = PyDict_GetItemString(PyImport_GetModuleDict(), module);
      Ref function = loaded != nullptr ? Ref::steal(PyObject_GetAttrString(loaded, name)) : Ref();
      PyErr_Clear();
      if (function) found->push_back(function.release());
    }
    return found;
  });
  for (PyObject* query : *queries) {
    if (query == function.get()) return true;
  }
  return false;
}

// An abstract base class answers from registries and caches that no guard sees.
void check_instance_test(lift::Lifter& lifter, Borrowed classes) {
  if (PyTuple_Check(classes.get())) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes.get()); i++)
      check_instance_test(lifter, PyTuple_GET_ITEM(classes.get(), i));
    return;
  }
  lifter.use_special_methods(classes.type());  // __instancecheck__ and __subclasscheck__ are the metaclass's
  for (PyTypeObject* type = classes.type(); type != nullptr; type = type->tp_base) {
    if (strcmp(type->tp_name, "ABCMeta") == 0)
      stop(report::Reason::native_call, "an instance test against an abstract base class");
  }
}

}  // namespace

void Tracer::escape_all(PyObject* const* arguments, size_t count) {
  for (size_t i = 0; i < count; i++) lifter.escape(arguments[i]);
}

Ref Tracer::call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  const Natives& natives = Natives::table();
  if (PyMethod_Check(callable.get())) {
    const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
    std::vector<PyObject*> with_self(total + 2);
    with_self[1] = PyMethod_GET_SELF(callable.get());
    std::copy(arguments, arguments + total, with_self.begin() + 2);
    return call(PyMethod_GET_FUNCTION(callable.get()), with_self.data() + 1, positional + 1, keyword_names);
  }
  if (natives.torch(callable)) return call_torch(callable, arguments, positional, keyword_names);
  if (PyFunction_Check(callable.get())) return call_function(callable, arguments, positional, keyword_names);
  lift::Known* known = lifter.known(callable);
  if (known != nullptr && known->opaque)
    stop(report::Reason::opaque_object, std::string("a call of ") + callable.type()->tp_name);
  if (!keyword_names) {
    bool handled = false;
    Ref result = call_reflective(callable, arguments, positional, &handled);
    if (handled) return result;
  }
  if (PyType_Check(callable.get())) return call_type(callable, arguments, positional, keyword_names);
  if (is_type(callable, "functools._lru_cache_wrapper")) {
    // The cache would be written: the function behind it gives the same.
    Ref wrapped = checked(PyObject_GetAttrString(callable.get(), "__wrapped__"));
    return call(lifter.lift(wrapped, lifter.constant(wrapped)), arguments, positional, keyword_names);
  }
  if (natives.function(callable)) return call_native(callable, arguments, positional, keyword_names);
  if ((callable.type()->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) {
    Ref call_name = checked(PyUnicode_InternFromString("__call__"));
    if (Ref bound = special_method(callable, call_name); bound && PyMethod_Check(bound.get())) {
      return call(bound, arguments, positional, keyword_names);
    }
  }
  stop(report::Reason::native_call, native_name(callable));
}

Ref Tracer::call_function(Borrowed function, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  if (is_compiling_query(function)) return Ref::share(Py_True);
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function.get()));
  if ((code->co_flags & (CO_VARARGS | CO_VARKEYWORDS)) != 0) {
    escape_all(arguments,
               positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0));
  }
  return checked(
      PyObject_Vectorcall(function.get(), arguments, positional | PY_VECTORCALL_ARGUMENTS_OFFSET, keyword_names.get()));
}

Ref Tracer::call_torch(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
  escape_all(arguments, total);
  for (size_t i = 0; i < total; i++) check_use(arguments[i], "a torch call");
  const std::string name = native_name(callable);
  if (name.size() >= 8 && name.compare(name.size() - 8, 8, "backward") == 0) stop(report::Reason::backward, name);
  session.clear_failure();
  try {
    Paused paused(*this);
    return recorder.call(callable, arguments, positional | PY_VECTORCALL_ARGUMENTS_OFFSET, keyword_names);
  } catch (const PyError&) {
    const std::string text = take_error_text();
    const fake::Failure* failure = session.failure();
    const bool data = failure != nullptr && failure->kind == fake::FailureKind::DataDependent;
    stop(data ? report::Reason::data_dependent : report::Reason::torch_call, name + ": " + text);
  } catch (const std::exception& error) {
    PyErr_Clear();
    stop(report::Reason::torch_call, name + ": " + error.what());
  }
}

Ref Tracer::call_type(Borrowed type_object, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  const Natives& natives = Natives::table();
  auto* type = type_object.as<PyTypeObject>();
  const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
  escape_all(arguments, total);
  if (type == &PySuper_Type && total == 0) {
    // super() looks at the current frame's first argument by itself.
    PyObject*& first = frame_->localsplus[0];
    if (first != nullptr && Py_IS_TYPE(first, &lazy_type)) {
      auto* lazy = reinterpret_cast<LazyObject*>(first);
      Ref lifted = lifter.lift(lazy->value, lazy->source);
      Py_DECREF(std::exchange(first, lifted.release()));
    }
    return checked(PyObject_Vectorcall(type_object.get(), arguments, 0, nullptr));
  }
  if (type == &PyType_Type && total == 1 && positional == 1) {
    return Ref::share(reinterpret_cast<PyObject*>(Py_TYPE(arguments[0])));
  }
  const bool makes_class = PyType_IsSubtype(type, &PyType_Type);
  if (makes_class) {
    if (total < 2 || !PyTuple_Check(arguments[1])) stop(report::Reason::native_call, type->tp_name);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments[1]); i++) {
      Borrowed base = PyTuple_GET_ITEM(arguments[1], i);
      if (!PyType_Check(base.get()) ||
          ((base.as<PyTypeObject>()->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !lifter.made_here(base))) {
        stop(report::Reason::outside_subclass, native_name(base));
      }
    }
  }
  PyTypeObject* base = lift::layout_base(type);
  if (base == nullptr || !(natives.type(base) || PyType_IsSubtype(base, &PyType_Type))) {
    stop(report::Reason::native_call, native_name(type_object));
  }
  if (type->tp_finalize != nullptr && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && base != type) {
    stop(report::Reason::finaliser, type->tp_name);
  }
  lifter.use_special_methods(type);
  if ((Py_TYPE(type)->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) lifter.use_special_methods(Py_TYPE(type));
  if (type == &PyUnicode_Type || type == &PyBytes_Type) {
    for (size_t i = 0; i < total; i++) check_text(arguments[i]);
  } else {
    for (size_t i = 0; i < total; i++) check_use(arguments[i], type->tp_name);
  }
  if (total == 1 && graph::is_tensor(arguments[0]) && base == type && !makes_class) {
    // int(tensor), float(tensor), list(tensor): torch's own conversions.
    session.clear_failure();
    Ref result = Ref::steal(PyObject_Vectorcall(type_object.get(), arguments, positional, keyword_names.get()));
    if (result) return result;
    const std::string text = take_error_text();
    const fake::Failure* failure = session.failure();
    const bool data = failure != nullptr && failure->kind == fake::FailureKind::DataDependent;
    stop(data ? report::Reason::data_dependent : report::Reason::torch_call,
         std::string(type->tp_name) + " of a tensor: " + text);
  }
  Ref made = checked(PyObject_Vectorcall(type_object.get(), arguments, positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                         keyword_names.get()));
  if (makes_class && PyType_Check(made.get())) lifter.note_made_here(made);
  return made;
}

Ref Tracer::call_native(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  const Natives& natives = Natives::table();
  const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
  PyObject* self = PyCFunction_Check(callable.get()) ? PyCFunction_GET_SELF(callable.get()) : nullptr;
  if (self != nullptr && !PyModule_Check(self) && !PyType_Check(self)) {
    // Appending to an outside list needs none of its elements.
    if (!(PyList_CheckExact(self) && total == 1 &&
          strcmp(callable.as<PyCFunctionObject>()->m_ml->ml_name, "append") == 0)) {
      lifter.escape(self);
    }
    check_use(self, native_name(callable).c_str());
  }
  escape_all(arguments, total);
  const std::string name = native_name(callable);
  bool shows = name == "builtins.repr" || name == "builtins.format" || name == "builtins.ascii" ||
               name == "str.format" || name == "str.__mod__" || name == "str.join";
  bool tensors = false;
  for (size_t i = 0; i < total; i++) {
    if (shows) check_text(arguments[i]);
    if (callable != Borrowed(natives.isinstance)) check_use(arguments[i], name.c_str());
    tensors = tensors || graph::is_tensor(arguments[i]);
  }
  if (name == "str.format" && self != nullptr && PyUnicode_Check(self)) {
    const char* format = PyUnicode_AsUTF8(self);
    if (format != nullptr && (strchr(format, '.') != nullptr || strchr(format, '[') != nullptr)) {
      stop(report::Reason::native_call, "str.format with a field path");  // reads attributes natively
    }
  }
  if ((name == "builtins.isinstance" || name == "builtins.issubclass") && total == 2)
    check_instance_test(lifter, arguments[1]);
  for (const char* reader : {"__reduce_ex__", "__reduce__", "__getstate__", "__dir__", "__sizeof__"}) {
    // These read the real object's state behind our back.
    if (name.size() >= strlen(reader) && name.compare(name.size() - strlen(reader), std::string::npos, reader) == 0) {
      stop(report::Reason::native_call, name);
    }
  }
  if (callable == Borrowed(natives.build_class)) {
    for (size_t i = 2; i < positional; i++) {
      Borrowed base = arguments[i];
      if (PyType_Check(base.get()) && (base.as<PyTypeObject>()->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 &&
          !lifter.made_here(base)) {
        stop(report::Reason::outside_subclass, native_name(base));
      }
    }
  }
  session.clear_failure();
  Ref result = Ref::steal(
      PyObject_Vectorcall(callable.get(), arguments, positional | PY_VECTORCALL_ARGUMENTS_OFFSET, keyword_names.get()));
  if (!result) {
    const fake::Failure* failure = session.failure();
    if (!stopped && (failure != nullptr || (tensors && self == nullptr))) {
      const bool data = failure != nullptr && failure->kind == fake::FailureKind::DataDependent;
      stop(data ? report::Reason::data_dependent : report::Reason::torch_call, name + ": " + take_error_text());
    }
    throw PyError();
  }
  if (callable == Borrowed(natives.build_class) && PyType_Check(result.get())) lifter.note_made_here(result);
  return result;
}

Ref Tracer::call_reflective(Borrowed callable, PyObject* const* arguments, size_t count, bool* handled) {
  const Natives& natives = Natives::table();
  auto is = [&](PyObject* native, size_t least, size_t most) {
    const bool match = callable.get() == native && count >= least && count <= most;
    *handled = *handled || match;
    return match;
  };
  const bool named = count >= 2 && PyUnicode_Check(arguments[1]);
  auto lacks = [&] {
    const bool absent = !stopped && PyErr_ExceptionMatches(PyExc_AttributeError);
    if (absent) PyErr_Clear();
    return absent;
  };
  if (named && is(natives.getattr, 2, 3)) {
    try {
      return get_attribute(arguments[0], arguments[1]);
    } catch (const PyError&) {
      if (count == 3 && lacks()) return Ref::share(arguments[2]);
      throw;
    }
  }
  if (named && is(natives.hasattr, 2, 2)) {
    try {
      (void)get_attribute(arguments[0], arguments[1]);
      return Ref::share(Py_True);
    } catch (const PyError&) {
      if (lacks()) return Ref::share(Py_False);
      throw;
    }
  }
  if (named && is(natives.setattr, 3, 3)) {
    set_attribute(arguments[0], arguments[1], arguments[2]);
    return Ref::share(Py_None);
  }
  if (named && is(natives.delattr, 2, 2)) {
    set_attribute(arguments[0], arguments[1], {});
    return Ref::share(Py_None);
  }
  if (is(natives.vars, 1, 1)) return get_attribute(arguments[0], names::__dict__);
  if (is(natives.len, 1, 1)) {
    lift::Known* known = lifter.known(arguments[0]);
    if (known != nullptr && known->shadow != nullptr && !known->shadow->whole) lifter.guard_length(*known->shadow);
    check_use(arguments[0], "len");
    return checked(PyLong_FromSsize_t([&] {
      const Py_ssize_t length = PyObject_Length(arguments[0]);
      if (length < 0) throw PyError();
      return length;
    }()));
  }
  bool absent = false;
  if (named && is(natives.object_getattribute, 2, 2)) {
    Ref value = get_generic(arguments[0], arguments[1], &absent);
    if (!absent) return value;
    if (!PyErr_Occurred()) {
      PyErr_Format(PyExc_AttributeError, "'%.50s' object has no attribute '%U'", Py_TYPE(arguments[0])->tp_name,
                   arguments[1]);
    }
    throw PyError();
  }
  lift::Known* known = count >= 1 ? lifter.known(arguments[0]) : nullptr;
  if (named && known != nullptr && known->instance &&
      (is(natives.object_setattr, 3, 3) || is(natives.object_delattr, 2, 2))) {
    set_generic(arguments[0], arguments[1], count == 3 ? Borrowed(arguments[2]) : Borrowed());
    return Ref::share(Py_None);
  }
  if (Py_IS_TYPE(callable.get(), &_PyMethodWrapper_Type)) {  // super().__setattr__(name, value)
    Ref name = checked(PyObject_GetAttrString(callable.get(), "__name__"));
    Ref self = checked(PyObject_GetAttrString(callable.get(), "__self__"));
    Ref owner = checked(PyObject_GetAttrString(callable.get(), "__objclass__"));
    if (owner.get() == reinterpret_cast<PyObject*>(&PyBaseObject_Type)) {
      PyObject* with_self[] = {self.get(), count > 0 ? arguments[0] : nullptr, count > 1 ? arguments[1] : nullptr};
      for (PyObject* native : {natives.object_getattribute, natives.object_setattr, natives.object_delattr}) {
        Ref native_name = checked(PyObject_GetAttrString(native, "__name__"));
        if (PyUnicode_Compare(name.get(), native_name.get()) == 0)
          return call_reflective(native, with_self, count + 1, handled);
      }
    }
  }
  if (PyCFunction_Check(callable.get()) && PyCFunction_GET_SELF(callable.get()) != nullptr && count >= 1 &&
      count <= 2 && PyDict_CheckExact(PyCFunction_GET_SELF(callable.get())) &&
      strcmp(callable.as<PyCFunctionObject>()->m_ml->ml_name, "get") == 0) {
    lift::Known* dict = lifter.known(PyCFunction_GET_SELF(callable.get()));
    if (dict != nullptr && dict->shadow != nullptr && !dict->shadow->whole && lift::is_plain(arguments[0])) {
      *handled = true;
      Ref value = lifter.dict_item(*dict->shadow, arguments[0]);
      return value ? std::move(value) : Ref::share(count > 1 ? arguments[1] : Py_None);
    }
  }
  return {};
}

}  // namespace alternator::trace
