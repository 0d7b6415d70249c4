// Calls: Python functions are traced, torch's are recorded, native ones pass the gate.
#include "trace/tracer.h"

#include "cpython/objects.h"
#include "cpython/version.h"
#include "graph/errors.h"
#include "graph/mode.h"
#include "py/names.h"
#include "trace/markers.h"
#include "trace/natives.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include "py/import.h"
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

// object.__hash__, tuple.__hash__, ...
bool is_hash_slot(Borrowed descriptor) {
  return PyUnicode_CompareWithASCIIString(reinterpret_cast<PyDescrObject*>(descriptor.get())->d_name, "__hash__") == 0;
}

// A method of a dict, set or list of the trace: what it is given is a key or an element.
bool is_keyed_method(Borrowed callable) {
  if (!PyCFunction_Check(callable.get())) return false;
  PyObject* self = PyCFunction_GET_SELF(callable.get());
  return self != nullptr && (PyDict_CheckExact(self) || PySet_CheckExact(self) || PyList_CheckExact(self));
}

bool is_abstract(Borrowed cls) { return PyType_IsSubtype(cls.type(), lift::known_types().abc_meta) != 0; }

// Whether an abstract class answers by registered and real subclasses and by special methods alone.
bool answers_by_structure(Borrowed cls) {
  Ref hook_name = checked(PyUnicode_InternFromString("__subclasshook__"));
  PyObject* hook = _PyType_Lookup(cls.as<PyTypeObject>(), hook_name.get());
  if (hook == nullptr || !Py_IS_TYPE(hook, &PyClassMethod_Type)) return true;
  Ref function = checked(PyObject_GetAttrString(hook, "__func__"));
  if (!PyFunction_Check(function.get())) return false;
  Ref module = Ref::steal(PyObject_GetAttrString(function.get(), "__module__"));
  PyErr_Clear();
  return module && PyUnicode_Check(module.get()) &&
         PyUnicode_CompareWithASCIIString(module.get(), "collections.abc") == 0;
}

bool is_python_function(PyTypeObject* type, const char* name) {
  PyObject* found = _PyType_Lookup(type, checked(PyUnicode_InternFromString(name)).get());
  return found != nullptr && PyFunction_Check(found);
}

bool is_python_hook(PyTypeObject* metaclass, const char* name) {
  PyObject* found = _PyType_Lookup(metaclass, checked(PyUnicode_InternFromString(name)).get());
  if (found == nullptr || !PyFunction_Check(found)) return false;
  Ref module = Ref::steal(PyObject_GetAttrString(found, "__module__"));
  PyErr_Clear();
  return !module || !PyUnicode_Check(module.get()) || PyUnicode_CompareWithASCIIString(module.get(), "abc") != 0;
}

}  // namespace

// Asks a builtin for a number of the process, and guards the answer.
Ref Tracer::query(Borrowed builtin) {
  Ref answer = checked(PyObject_CallNoArgs(builtin.get()));
  if (!lift::is_plain(answer.get())) stop(report::Reason::native_call, native_name(builtin));
  lift::Source* source = tree->child(lifter.constant(builtin), lift::Access::kQuery);
  tree->guard(source, {lift::GuardKind::kEquals, Ref(answer)});
  return answer;
}

// isinstance and issubclass against abstract base classes. Their answers come from registries and caches; as long as
// the cache token and the special methods of the class that is asked about stay, so does the answer.
bool Tracer::check_instance_test(Borrowed subject_class, Borrowed classes) {
  if (PyTuple_Check(classes.get())) {
    size_t abstract = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes.get()); i++)
      abstract += check_instance_test(subject_class, PyTuple_GET_ITEM(classes.get(), i)) ? 1 : 0;
    // With other hooks among them, those must be traced.
    for (Py_ssize_t i = 0; abstract > 0 && i < PyTuple_GET_SIZE(classes.get()); i++) {
      PyTypeObject* metaclass = Py_TYPE(PyTuple_GET_ITEM(classes.get(), i));
      if (is_python_hook(metaclass, "__instancecheck__")) stop(report::Reason::native_call, "a mixed instance test");
    }
    return abstract > 0;
  }
  // torch.FloatTensor and its like look at the tensor's own type, which a fake does not have.
  if (strcmp(classes.type()->tp_name, "torch.tensortype") == 0)
    stop(report::Reason::native_call, "an instance test against a tensor type");
  guard_order_of_bases(subject_class);
  (void)lifter.use_special_methods(classes.type());  // __instancecheck__ and __subclasscheck__ are the metaclass's
  if (!PyType_Check(classes.get()) || !is_abstract(classes)) return false;
  // Hooks of the user's that would run as native callbacks, on classes that are not lifted.
  if (!answers_by_structure(classes) || is_python_hook(classes.type(), "__instancecheck__") ||
      is_python_hook(classes.type(), "__subclasscheck__")) {
    stop(report::Reason::native_call, "an instance test against an abstract base class");
  }
  for (PyTypeObject* base : hooked_bases_) {
    if (PyType_IsSubtype(base, classes.as<PyTypeObject>()))
      stop(report::Reason::native_call, "an instance test against a class with subclasses of the call's own");
  }
  // What an object says of its class would be asked natively.
  auto* subject = subject_class.as<PyTypeObject>();
  if (Borrowed(lifter.type_attribute(subject, checked(PyUnicode_InternFromString("__class__")))) !=
          Borrowed(Natives::table().object_class) ||
      is_python_function(subject, "__getattribute__") || is_python_function(subject, "__getattr__")) {
    stop(report::Reason::native_call, "an instance test of an object with a __class__ of its own");
  }
  (void)query(Natives::table().abc_token);
  (void)lifter.use_special_methods(subject);
  return true;
}

void Tracer::guard_order_of_bases(Borrowed cls) {
  auto* type = cls.as<PyTypeObject>();
  if ((type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0 || lifter.made_here(cls)) return;
  lift::Source* mro = tree->child(lifter.constant(cls), lift::Access::kMro);
  tree->guard(mro, {lift::GuardKind::kIs, Ref::share(type->tp_mro)});
}

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
  Ref shown;
  if (call_effect(callable, arguments, positional, keyword_names, &shown)) return shown;
  if (Py_IS_TYPE(callable.get(), &_PyWeakref_CallableProxyType)) {
    Ref referent = Ref::share(PyWeakref_GetObject(callable.get()));
    if (referent.get() != Py_None) return call(referent, arguments, positional, keyword_names);
  }
  if (is_autograd_apply(callable)) return call_autograd_function(callable, arguments, positional, keyword_names);
  const bool is_torchs = natives.torch(callable);
  if (is_torchs && is_disallowed(callable)) stop(report::Reason::disallowed, native_name(callable));
  if (is_torchs || is_allowed_in_graph(callable)) return call_torch(callable, arguments, positional, keyword_names);
  if (Ref result = call_library(callable, arguments, positional, keyword_names)) return result;
  if (Ref number = keyword_names ? Ref() : call_random(callable, positional)) return number;
  if (Ref number = call_numpy(callable, arguments, positional, keyword_names)) return number;
  if (PyFunction_Check(callable.get())) return call_function(callable, arguments, positional, keyword_names);
  if (is_compiled(callable)) return call_compiled(callable, arguments, positional, keyword_names);
  lift::Known* known = lifter.known(callable);
  if (known != nullptr && known->opaque)
    stop(report::Reason::opaque_object, std::string("a call of ") + callable.type()->tp_name);
  if (callable.get() == natives.next && !keyword_names && (positional == 1 || positional == 2) &&
      lift::is_fixed_iterator(arguments[0]) && lifter.known(arguments[0]) != nullptr) {
    return next_of_outside(arguments, positional);
  }
  if (!keyword_names) {
    bool handled = false;
    Ref result = call_reflective(callable, arguments, positional, &handled);
    if (handled) return result;
    result = call_about_frame(callable, arguments, positional, &handled);
    if (handled) return result;
  }
  if (PyType_Check(callable.get())) return call_type(callable, arguments, positional, keyword_names);
  if (callable.type() == lift::known_types().partial)
    return call_partial(callable, arguments, positional, keyword_names);
  if (PyCFunction_Check(callable.get()) && positional == 1 && !keyword_names) {
    if (Ref answer = real_instance_test(callable, arguments[0])) return answer;
  }
  if (natives.function(callable)) return call_native(callable, arguments, positional, keyword_names);
  if ((callable.type()->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) {
    if (Ref bound = special_method(callable, names::__call__);
        bound && (PyMethod_Check(bound.get()) || is_compiled(bound))) {
      return call(bound, arguments, positional, keyword_names);
    }
    // What a class has from a builtin one: a subclass of weakref.ref.
    PyTypeObject* base = lift::layout_base(callable.type());
    if (base != nullptr && base->tp_call != nullptr && callable.type()->tp_call == base->tp_call && natives.type(base))
      return call_native(callable, arguments, positional, keyword_names);
  }
  if (Ref substitute = substitute_of(callable))
    return call(lifter.lift(substitute, lifter.constant(substitute)), arguments, positional, keyword_names);
  if (callable.type()->tp_call == nullptr)  // a TypeError that says so
    return checked(PyObject_Vectorcall(callable.get(), arguments, positional, keyword_names.get()));
  stop(report::Reason::native_call, native_name(callable));
}

// type.__instancecheck__ and type.__subclasscheck__, as a metaclass's own hooks call them: the test without any hook.
Ref Tracer::real_instance_test(Borrowed callable, Borrowed subject) {
  Borrowed cls = PyCFunction_GET_SELF(callable.get());
  if (!cls || !PyType_Check(cls.get())) return {};
  const char* name = callable.as<PyCFunctionObject>()->m_ml->ml_name;
  const bool instance = strcmp(name, "__instancecheck__") == 0;
  if (!instance && (strcmp(name, "__subclasscheck__") != 0 || !PyType_Check(subject.get()))) return {};
  Borrowed method = PyDict_GetItemString(cpython::own_dict(&PyType_Type), name);
  if (!method || !Py_IS_TYPE(method.get(), &PyMethodDescr_Type) ||
      method.as<PyMethodDescrObject>()->d_method != callable.as<PyCFunctionObject>()->m_ml) {
    return {};
  }
  PyTypeObject* type = instance ? subject.type() : subject.as<PyTypeObject>();
  if (instance && !PyType_IsSubtype(type, cls.as<PyTypeObject>())) {
    // Then its __class__ is asked, which a class may answer for itself.
    Borrowed answer = lifter.type_attribute(type, checked(PyUnicode_InternFromString("__class__")));
    if (!answer || answer.get() != PyDict_GetItemString(cpython::own_dict(&PyBaseObject_Type), "__class__")) return {};
  }
  return Ref::share(PyType_IsSubtype(type, cls.as<PyTypeObject>()) ? Py_True : Py_False);
}

// A compiled function inside of a compiled function is a part of it.
Ref Tracer::call_compiled(Borrowed compiled, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  lift::Known* known = lifter.known(compiled);
  if (known == nullptr) stop(report::Reason::native_call, "a compiled function of unknown origin");
  lift::Source* source = known->source;
  auto field = [&](const char* text) {
    Ref name = checked(PyUnicode_InternFromString(text));
    Ref value = checked(PyObject_GetAttr(compiled.get(), name.get()));
    return lifter.lift(value, tree->child(source, lift::Access::kField, name));
  };
  Ref function = field("__wrapped__"), self = field("__self__");
  if (self.get() == Py_None) return call(function, arguments, positional, keyword_names);
  return call(checked(PyMethod_New(function.get(), self.get())), arguments, positional, keyword_names);
}

Ref Tracer::call_function(Borrowed function, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  switch (mark_of(function)) {
    case Mark::kNone:
      break;
    case Mark::kCompilingQuery:
      // A module with hooks asks to spare TorchDynamo a try. Here it runs as in eager, with the hooks that always run.
      if (reinterpret_cast<PyObject*>(cpython::code_of(frame_)) == Natives::table().module_call_code)
        return Ref::share(Py_False);
      return Ref::share(Py_True);
    case Mark::kShield: {
      Ref wrapped = get_from_function(function, checked(PyUnicode_InternFromString("__wrapped__")));
      try {
        return call(wrapped, arguments, positional, keyword_names);
      } catch (const PyError&) {
        if (stopped) throw;
        stop(report::Reason::raises, "through a frame that is looked through");  // a traceback would lack it
      }
    }
    case Mark::kDisabled:
      stop(report::Reason::disabled, disabled_text(function));
    case Mark::kGraphBreak:
      stop(report::Reason::asked_for,
           positional > 0 && PyUnicode_Check(arguments[0]) ? PyUnicode_AsUTF8(arguments[0]) : "graph_break()");
    case Mark::kSkipFrame:
      stop(report::Reason::skipped,
           positional > 0 && PyUnicode_Check(arguments[0]) ? PyUnicode_AsUTF8(arguments[0]) : "skip_frame()");
    case Mark::kNotes:
      return Ref::share(Py_None);
    case Mark::kConstant:
      return call_constant(function, arguments, positional, keyword_names);
  }
  if (function == Borrowed(Natives::table().tensor_hash) && positional == 1 && !keyword_names)
    return hash_of(arguments[0], Natives::table().hash);
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function.get()));
  if (reinterpret_cast<PyObject*>(code) == Natives::table().module_getattr_code && positional == 2 && !keyword_names) {
    if (Ref value = module_attribute(arguments[0], arguments[1])) return value;
  }
  if ((code->co_flags & (CO_VARARGS | CO_VARKEYWORDS)) != 0) {
    escape_all(arguments,
               positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0));
  }
  return checked(
      PyObject_Vectorcall(function.get(), arguments, positional | PY_VECTORCALL_ARGUMENTS_OFFSET, keyword_names.get()));
}

// x.new(2, 3) and x.new(size), the legacy form of x.new_empty(), which torch itself refuses for fakes: the method that
// takes the same arguments. Null: it is no such call.
static Ref modern_new(Borrowed callable, PyObject* const* arguments, size_t count) {
  const char* name = nullptr;
  Borrowed owner;
  if (PyCFunction_Check(callable.get())) {
    name = callable.as<PyCFunctionObject>()->m_ml->ml_name;
    owner = PyCFunction_GET_SELF(callable.get());
    if (owner && !graph::is_tensor(owner)) owner = {};
  } else if (Py_IS_TYPE(callable.get(), &PyMethodDescr_Type) && count > 0 && graph::is_tensor(arguments[0])) {
    name = callable.as<PyMethodDescrObject>()->d_method->ml_name;
    owner = reinterpret_cast<PyObject*>(reinterpret_cast<PyDescrObject*>(callable.get())->d_type);
    arguments++, count--;
  }
  if (!owner || strcmp(name, "new") != 0 || count == 0) return {};
  const bool is_size = count == 1 && strcmp(Py_TYPE(arguments[0])->tp_name, "torch.Size") == 0;
  for (size_t i = 0; i < count && !is_size; i++) {
    if (!PyLong_CheckExact(arguments[i])) return {};
  }
  return checked(PyObject_GetAttrString(owner.get(), "new_empty"));
}

void Tracer::stop_for_torch(const std::string& what) {
  const fake::Failure* failure = session.failure();
  const bool data = failure != nullptr && failure->kind == fake::FailureKind::DataDependent;
  const std::string text = take_error_text();
  const bool number = text.starts_with("GuardOnDataDependentSymNode");
  stop(data || number ? report::Reason::data_dependent : report::Reason::torch_call, what + ": " + text);
}

// x.tolist() looks at memory without the dispatcher, which a fake has none of. Null: it is no such call.
Ref Tracer::list_of_values(Borrowed callable, const std::string& name, PyObject* const* arguments, size_t count) {
  if (name != "Tensor.tolist") return {};
  Borrowed tensor = PyCFunction_Check(callable.get()) ? PyCFunction_GET_SELF(callable.get())
                    : count > 0                       ? arguments[0]
                                                      : nullptr;
  if (!tensor || !graph::is_tensor(tensor) || !fake::is_fake(fake::unpack(tensor.get()))) return {};
  const std::optional<at::Tensor> value = session.known_value(fake::unpack(tensor.get()));
  if (!value && recorder.captures_scalars() && graph::is_top_mode(recorder.mode())) return list_of_numbers(tensor);
  if (!value) stop(report::Reason::data_dependent, "Tensor.tolist: the result is the data of a tensor");
  const Paused paused(*this);
  const fake::Inactive inactive;
  using at::impl::PythonTorchFunctionTLS;
  const auto state = PythonTorchFunctionTLS::get_disabled_state();
  PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED);
  Ref values = Ref::steal(PyObject_CallMethod(Ref::steal(THPVariable_Wrap(*value)).get(), "tolist", nullptr));
  PythonTorchFunctionTLS::set_disabled_state(state);
  return checked(std::move(values));
}

Ref Tracer::call_torch(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
  escape_all(arguments, total);
  for (size_t i = 0; i < total; i++) {
    if (!fake::is_symbol(arguments[i])) check_use(arguments[i], "a torch call");
    check_order(arguments[i], "a torch call");
    if (holds_identity(arguments[i])) stop(report::Reason::identity_number, "a torch call");
  }
  const std::string name = native_name(callable);
  std::vector<PyObject*> given;
  std::vector<Ref> numbers;
  if (use_numbers(arguments, total, name, &given, &numbers)) arguments = given.data() + 1;
  if (Ref empty = keyword_names ? Ref() : modern_new(callable, arguments, positional))
    return call_torch(empty, arguments, positional, {});
  if (name.size() >= 8 && name.compare(name.size() - 8, 8, "backward") == 0) stop(report::Reason::backward, name);
  check_tensor_method(callable, name, arguments, positional);
  if (Ref values = list_of_values(callable, name, arguments, positional)) return values;
  session.clear_failure();
  try {
    Paused paused(*this);
    return recorder.call(callable, arguments, positional | PY_VECTORCALL_ARGUMENTS_OFFSET, keyword_names);
  } catch (const PyError&) {
    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {  // torch looks for signals by itself
      interrupted = cpython::take_raised();
      stop(report::Reason::interrupted, name);
    }
    stop_for_torch(name);
  } catch (const std::exception& error) {
    PyErr_Clear();
    stop(report::Reason::torch_call, name + ": " + error.what());
  }
}

PyTypeObject* Tracer::check_class_call(PyTypeObject* type) {
  PyTypeObject* base = lift::layout_base(type);
  if (base == nullptr || !(Natives::table().type(base) || PyType_IsSubtype(base, &PyType_Type))) {
    stop(report::Reason::native_call, native_name(reinterpret_cast<PyObject*>(type)));
  }
  if (type->tp_finalize != nullptr && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && base != type) {
    stop(report::Reason::finaliser, type->tp_name);
  }
  if (!lifter.use_special_methods(type))
    stop(report::Reason::native_call, std::string("a special method of ") + type->tp_name + " is no function");
  if ((Py_TYPE(type)->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) lifter.use_special_methods(Py_TYPE(type));
  return base;
}

// A partial is its function, called with more: the gate is asked about that one.
Ref Tracer::call_partial(Borrowed partial, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  auto field = [&](const char* name) { return checked(PyObject_GetAttrString(partial.get(), name)); };
  Ref function = field("func"), first = field("args"), named = field("keywords");
  std::vector<PyObject*> all{nullptr};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(first.get()); i++) all.push_back(PyTuple_GET_ITEM(first.get(), i));
  all.insert(all.end(), arguments, arguments + positional);
  const size_t total = all.size() - 1;
  Ref merged = checked(PyDict_Copy(named.get()));
  for (Py_ssize_t i = 0; keyword_names && i < PyTuple_GET_SIZE(keyword_names.get()); i++) {
    check_status(PyDict_SetItem(merged.get(), PyTuple_GET_ITEM(keyword_names.get(), i),
                                arguments[positional + static_cast<size_t>(i)]));
  }
  if (PyDict_GET_SIZE(merged.get()) == 0) return call(function, all.data() + 1, total, {});
  std::vector<PyObject*> names;
  PyObject *key, *value;
  for (Py_ssize_t position = 0; PyDict_Next(merged.get(), &position, &key, &value);) {
    if (!PyUnicode_Check(key)) {
      PyErr_SetString(PyExc_TypeError, "keywords must be strings");
      throw PyError();
    }
    names.push_back(key);
    all.push_back(value);
  }
  Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(names.size())));
  for (size_t i = 0; i < names.size(); i++)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), Py_NewRef(names[i]));
  return call(function, all.data() + 1, total, tuple);
}

Ref Tracer::call_type(Borrowed type_object, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  auto* type = type_object.as<PyTypeObject>();
  const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
  escape_all(arguments, total);
  if (type == &PySuper_Type && total == 0) {
    // super() looks at the current frame's first argument by itself, and at the cell of its class.
    PyObject*& first = frame_->localsplus[0];
    if (first != nullptr && Py_IS_TYPE(first, &lazy_type)) {
      auto* lazy = reinterpret_cast<LazyObject*>(first);
      Ref lifted = lifter.lift(lazy->value, lazy->source);
      Py_DECREF(std::exchange(first, lifted.release()));
    }
    for (int i = 0; i < cpython::code_of(frame_)->co_nlocalsplus; i++) {
      PyObject* cell = frame_->localsplus[i];
      if (cell == nullptr || !PyCell_Check(cell) || !lifter.is_outside_cell(cell)) continue;
      PyObject* name = PyTuple_GET_ITEM(cpython::code_of(frame_)->co_localsplusnames, i);
      if (i != 0 && PyUnicode_CompareWithASCIIString(name, "__class__") != 0) continue;
      if (lifter.load_cell(cell).get() != PyCell_GET(cell)) stop(report::Reason::native_call, "super()");
    }
    return checked(PyObject_Vectorcall(type_object.get(), arguments, 0, nullptr));
  }
  if (type == &PyType_Type && total == 1 && positional == 1) {
    if (is_drawn(arguments[0])) return Ref::share(&PyFloat_Type);
    if (fake::is_symbol(arguments[0])) return Ref::share(fake::class_of_symbol(arguments[0]));
    return Ref::share(is_identity(arguments[0]) ? &PyLong_Type : Py_TYPE(arguments[0]));
  }
  const bool makes_class = PyType_IsSubtype(type, &PyType_Type);
  if (makes_class) {
    if (total < 2 || !PyTuple_Check(arguments[1])) stop(report::Reason::native_call, type->tp_name);
    begin_class_of(arguments[1]);
  }
  if (total == 1 && positional == 1 && fake::is_symbol(arguments[0]) && (type == &PyLong_Type || type == &PyFloat_Type))
    return convert_number(type, arguments[0]);
  PyTypeObject* base = check_class_call(type);
  check_symbols(type, base, arguments, total);
  check_type_use(type, base, arguments, total);
  if (type == &PyUnicode_Type || type == &PyBytes_Type) {
    for (size_t i = 0; i < total; i++) check_text(arguments[i]);
  } else {
    for (size_t i = 0; i < total; i++)
      if (!fake::is_symbol(arguments[i])) check_use(arguments[i], type->tp_name);
  }
  if (total == 1 && graph::is_tensor(arguments[0]) && base == type && !makes_class) {
    if (Ref number = convert_tensor(type, arguments[0])) return number;
    // int(tensor), float(tensor), list(tensor): torch's own conversions.
    session.clear_failure();
    Ref result = Ref::steal(PyObject_Vectorcall(type_object.get(), arguments, positional, keyword_names.get()));
    if (result) return result;
    stop_for_torch(std::string(type->tp_name) + " of a tensor");
  }
  Ref made = checked(PyObject_Vectorcall(type_object.get(), arguments, positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                         keyword_names.get()));
  if (makes_class) finish_class(made);
  return made;
}

// Iterators and methods name a builtin in what they are reduced to, and find it by themselves in the real builtins.
static void check_builtins(lift::Lifter& lifter, const std::string& what) {
  lift::Shadow& builtins = lifter.name_space(PyEval_GetBuiltins());
  bool same =
      builtins.deleted_keys.empty() && PyDict_GET_SIZE(builtins.copy.get()) == PyDict_GET_SIZE(builtins.original.get());
  for (const char* text : {"iter", "reversed", "getattr"}) {
    if (!same) break;
    Ref name = checked(PyUnicode_InternFromString(text));
    Ref seen = lifter.dict_item(builtins, name);
    same = seen && seen.get() == PyDict_GetItemWithError(builtins.original.get(), name.get());
  }
  if (!same) stop(report::Reason::native_call, what + " after a write to the builtins");
}

Ref Tracer::reduce(Borrowed callable, PyObject* const* arguments, size_t count, const std::string& name) {
  const char* found = nullptr;
  for (const char* reader : {"__reduce_ex__", "__reduce__", "__getstate__", "__dir__", "__sizeof__"}) {
    if (name.size() >= strlen(reader) && name.compare(name.size() - strlen(reader), std::string::npos, reader) == 0)
      found = reader;
  }
  if (found == nullptr) return {};
  if (strncmp(found, "__reduce", 8) == 0) check_builtins(lifter, name);
  Ref self;
  if (PyCFunction_Check(callable.get())) {
    self = Ref::share(PyCFunction_GET_SELF(callable.get()));
  } else if (count > 0) {
    self = Ref::share(arguments[0]);
    arguments++, count--;
  }
  if (!self) stop(report::Reason::native_call, name);
  lift::Known* known = lifter.known(self);
  if (known == nullptr || known->shadow != nullptr) return {};
  if (PyCFunction_Check(self.get()) && known->source->access == lift::Access::kConstant) return {};  // its name
  // Native code would read the outside object's own state. Where that is a __dict__ and nothing else, this is the
  // answer.
  PyTypeObject* type = self.type();
  const bool ordinary = known->instance && lift::has_plain_layout(type) &&
                        lift::layout_base(type) == &PyBaseObject_Type &&
                        type->tp_basicsize <= PyBaseObject_Type.tp_basicsize + 2 * Py_ssize_t(sizeof(void*)) &&
                        strcmp(found, "__reduce_ex__") == 0 && count == 1;
  for (const char* hook : {"__getstate__", "__getnewargs__", "__getnewargs_ex__", "__reduce__", "__slots__"}) {
    Ref hook_name = checked(PyUnicode_InternFromString(hook));
    Borrowed own = ordinary ? Borrowed(lifter.type_attribute(type, hook_name)) : Borrowed();
    if (!ordinary || (own && !Py_IS_TYPE(own.get(), &PyMethodDescr_Type))) stop(report::Reason::native_call, name);
  }
  if (PyLong_AsLong(arguments[0]) < 2) stop(report::Reason::native_call, name);
  Ref make = checked(PyObject_GetAttrString(import_module("copyreg").get(), "__newobj__"));
  make = lifter.lift(make, lifter.constant(make));
  lift::Shadow* attributes = lifter.attributes(self);
  if (attributes != nullptr) lifter.lift_whole(*attributes);
  PyObject* state =
      attributes != nullptr && PyDict_GET_SIZE(attributes->copy.get()) > 0 ? attributes->copy.get() : Py_None;
  Ref of_class = checked(PyTuple_Pack(1, reinterpret_cast<PyObject*>(type)));
  return checked(PyTuple_Pack(5, make.get(), of_class.get(), state, Py_None, Py_None));
}

// next(): a loop goes on with its iterator for real, whatever its position.
Ref Tracer::next_of_outside(PyObject* const* arguments, size_t count) {
  Ref value = lifter.next_of(arguments[0]);
  if (value) return value;
  if (count == 2) return Ref::share(arguments[1]);
  PyErr_SetNone(PyExc_StopIteration);
  throw PyError();
}

// Classes that were there before, asked again and compared one by one.
Ref Tracer::subclasses_of(Borrowed cls) {
  if (lifter.has_new_subclasses(cls)) stop(report::Reason::native_call, "__subclasses__ of a class with new ones");
  Ref query = checked(PyObject_GetAttrString(cls.get(), "__subclasses__"));
  Ref found = checked(PyObject_CallNoArgs(query.get()));
  if (!PyCFunction_Check(query.get()) || !PyList_CheckExact(found.get()))
    stop(report::Reason::native_call, "__subclasses__ of the class's own");
  lift::Source* source = tree->child(lifter.constant(query), lift::Access::kQuery);
  tree->guard(source, {lift::GuardKind::kLength, {}, {}, PyList_GET_SIZE(found.get())});
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(found.get()); i++) {
    Ref one = lifter.lift(PyList_GET_ITEM(found.get(), i), tree->child(source, lift::Access::kIndex, {}, i));
    check_status(PyList_SetItem(found.get(), i, one.release()));
  }
  return found;
}

// What an outside class says of the classes around it is not guarded.
static bool looks_around_class(const lift::Lifter& lifter, Borrowed callable, PyObject* const* arguments,
                               size_t count) {
  const char* name = nullptr;
  Borrowed cls;
  if (PyCFunction_Check(callable.get())) {
    name = callable.as<PyCFunctionObject>()->m_ml->ml_name;
    cls = PyCFunction_GET_SELF(callable.get());
  } else if (Py_IS_TYPE(callable.get(), &PyMethodDescr_Type) && count > 0) {
    name = callable.as<PyMethodDescrObject>()->d_method->ml_name;
    cls = arguments[0];
  }
  if (name == nullptr || !cls || !PyType_Check(cls.get()) || lifter.made_here(cls)) return false;
  return strcmp(name, "__subclasses__") == 0 || strcmp(name, "mro") == 0 || strcmp(name, "__dir__") == 0;
}

Ref Tracer::call_native(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  const Natives& natives = Natives::table();
  const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
  PyObject* self = PyCFunction_Check(callable.get()) ? PyCFunction_GET_SELF(callable.get()) : nullptr;
  const std::string name = native_name(callable);
  if (self != nullptr && !PyModule_Check(self) && !PyType_Check(self)) {
    // Appending to an outside list needs none of its elements.
    if (!(PyList_CheckExact(self) && total == 1 &&
          strcmp(callable.as<PyCFunctionObject>()->m_ml->ml_name, "append") == 0)) {
      lifter.escape(self);
    }
    if (!reads_attributes(self)) check_use(self, name.c_str());
    if (PyExceptionInstance_Check(self) && lifter.known(self) != nullptr) stop(report::Reason::outside_exception, name);
  }
  escape_all(arguments, total);
  if (looks_around_class(lifter, callable, arguments, total)) {
    if (total == 0 && self != nullptr && name.ends_with(".__subclasses__")) return subclasses_of(self);
    stop(report::Reason::native_call, name);
  }
  if (name.ends_with(".throw")) {
    for (size_t i = 0; i < total; i++) {
      if (PyExceptionInstance_Check(arguments[i]) && lifter.known(arguments[i]) != nullptr)
        stop(report::Reason::outside_exception, name);
    }
  }
  check_symbols(callable, name, arguments, total);
  check_native_use(callable, arguments, total);
  bool tensors = false;
  for (size_t i = 0; i < total; i++) {
    const bool as_key = is_identity(arguments[i]) && is_keyed_method(callable);
    if (as_key && may_hold_address(self)) stop(report::Reason::identity_number, name);
    const bool looks = (callable != Borrowed(natives.isinstance) && !as_key) || is_drawn(arguments[i]);
    if (looks && !fake::is_symbol(arguments[i])) check_use(arguments[i], name.c_str());
    tensors = tensors || graph::is_tensor(arguments[i]);
  }
  if (name == "str.format" && self != nullptr && PyUnicode_Check(self)) {
    // It reads attributes and items natively: of plain values, that is all right.
    for (size_t i = 0; i < total && has_field_path(self); i++) {
      if (!lift::is_plain(arguments[i])) stop(report::Reason::native_call, "str.format with a field path");
    }
  }
  std::optional<Paused> paused;
  if ((name == "builtins.isinstance" || name == "builtins.issubclass") && total == 2) {
    Borrowed subject = arguments[0];
    if (name == "builtins.isinstance" || !PyType_Check(subject.get()))
      subject = reinterpret_cast<PyObject*>(subject.type());
    if (check_instance_test(subject, arguments[1])) paused.emplace(*this);
  }
  if (Ref reduced = reduce(callable, arguments, total, name)) return reduced;
  for (size_t i = 0; callable == Borrowed(natives.compile) && i < total; i++) {
    if (!lift::is_plain(arguments[i])) stop(report::Reason::native_call, "compile of something else than text");
  }
  check_class_call(callable, arguments, total);
  const bool makes_class = begin_class_call(callable, arguments, positional);
  session.clear_failure();
  const LookingUp looking_up(name == "dict.get" && total > 0 ? arguments[0] : Py_None);
  Ref result = Ref::steal(
      PyObject_Vectorcall(callable.get(), arguments, positional | PY_VECTORCALL_ARGUMENTS_OFFSET, keyword_names.get()));
  if (!result) {
    if (!stopped && (session.failure() != nullptr || (tensors && self == nullptr))) stop_for_torch(name);
    throw PyError();
  }
  if (makes_class) finish_class(result);
  return result;
}

// `callable`: hash, or a __hash__ slot, bound or not.
Ref Tracer::hash_of(Borrowed value, Borrowed callable) {
  lifter.escape(value);
  if (!is_identity(value)) check_use(value, "hash");
  HashKind kind = hash_kind(lifter, value);
  const bool bound = Py_IS_TYPE(callable.get(), &_PyMethodWrapper_Type);
  // A base's slot under a __hash__ of the user's.
  if (kind == HashKind::kPython && callable.get() != Natives::table().hash) {
    PyObject* v = value.get();
    kind = PyUnicode_Check(v) || PyLong_Check(v) || PyFloat_Check(v) || PyBytes_Check(v) ? HashKind::kValue
                                                                                         : HashKind::kAddress;
  }
  if (kind == HashKind::kNan) stop(report::Reason::identity_number, "the hash of a NaN");
  Ref number = checked(bound ? PyObject_CallNoArgs(callable.get()) : PyObject_CallOneArg(callable.get(), value.get()));
  // A __hash__ of the user's may be made of identities.
  if (kind == HashKind::kValue || (kind == HashKind::kPython && identities_made() == 0)) return number;
  keep_alive.push_back(Ref::share(value));
  return make_identity(PyLong_AsSsize_t(number.get()));
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
  if (is(natives.id, 1, 1)) {
    // A tensor's hash is where it is; a set or dict of the trace may go by that, as it does for other objects.
    if (frame_ != nullptr && reinterpret_cast<PyObject*>(cpython::function_of(frame_)) == natives.tensor_hash)
      return checked(PyLong_FromVoidPtr(arguments[0]));
    keep_alive.push_back(Ref::share(arguments[0]));  // an address is taken once
    Ref identity = make_identity(reinterpret_cast<Py_ssize_t>(arguments[0]));
    // Plain values are guarded by value, not by which object they are.
    PyObject* key = keep_alive.emplace_back(identity).get();
    (lift::is_plain(arguments[0]) ? unguarded_identities : identities)[key] = arguments[0];
    return identity;
  }
  if (is(natives.recursion_limit, 0, 0) || is(natives.abc_token, 0, 0)) return query(callable);
  for (PyObject* asked : natives.queries) {
    if (is(asked, 0, 0)) return query(callable);
  }
  if (is(natives.exc_info, 0, 0)) {
    Ref info = checked(PyObject_CallNoArgs(callable.get()));
    if (handled_before && PyTuple_GET_ITEM(info.get(), 1) == handled_before.get())
      stop(report::Reason::native_call, "the exception that the caller handles");
    if (Borrowed exception = PyTuple_GET_ITEM(info.get(), 1); lifter.known(exception) != nullptr) {
      Ref type = get_attribute(exception, names::__class__);
      Ref traceback = get_attribute(exception, names::__traceback__);
      return checked(PyTuple_Pack(3, type.get(), exception.get(), traceback.get()));
    }
    if (PyTuple_GET_ITEM(info.get(), 1) == Py_None) {  // neither does the caller handle one
      lift::Source* source = tree->child(lifter.constant(callable), lift::Access::kQuery);
      tree->guard(source, {lift::GuardKind::kEquals, Ref(info)});
    }
    return info;
  }
  if (is(natives.hash, 1, 1) ||
      (Py_IS_TYPE(callable.get(), &PyWrapperDescr_Type) && is_hash_slot(callable) && (*handled = count == 1))) {
    return hash_of(arguments[0], callable);
  }
  if (is(natives.get_ident, 0, 0)) return make_identity(static_cast<Py_ssize_t>(PyThread_get_thread_ident()));
  // The recording itself stands on torch's stack of modes: the program does not see it.
  if (is(natives.mode_stack_length, 0, 0) || is(natives.mode_enabled, 0, 0)) {
    const int64_t own = at::impl::PythonTorchFunctionTLS::stack_len() - 1;
    if (callable.get() == natives.mode_enabled)
      return Ref::share(own > 0 && !at::impl::torch_function_all_disabled() ? Py_True : Py_False);
    return checked(PyLong_FromLongLong(own));
  }
  if (is(natives.dir, 1, 1)) return names_of(arguments[0]);
  if (is(natives.vars, 1, 1)) {
    try {
      return get_attribute(arguments[0], names::__dict__);
    } catch (const PyError&) {
      if (stopped || PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw;
      PyErr_SetString(PyExc_TypeError, "vars() argument must have __dict__ attribute");
      throw;
    }
  }
  if (is(natives.len, 1, 1)) {
    lift::Known* known = lifter.known(arguments[0]);
    if (known != nullptr && known->shadow != nullptr && !known->shadow->whole) lifter.guard_length(*known->shadow);
    check_use(arguments[0], "len");
    if (recorder.has_symbols() && graph::is_tensor(arguments[0])) {
      Ref zero = checked(PyLong_FromLong(0));
      PyObject* first[] = {nullptr, arguments[0], zero.get()};
      if (fake::unpack(arguments[0]).dim() > 0) return call_torch(graph::torch_types().tensor_size, first + 1, 2, {});
    }
    if (may_hold_symbol(arguments[0]) && !has_native_length(arguments[0])) stop(report::Reason::unknown_number, "len");
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
      Ref error = cpython::take_raised();
      check_status(PyObject_SetAttrString(error.get(), "name", arguments[1]));
      check_status(PyObject_SetAttrString(error.get(), "obj", arguments[0]));
      cpython::set_raised(std::move(error));
    }
    throw PyError();
  }
  if (named && count >= 1 && PyType_Check(arguments[0]) &&
      (is(natives.type_setattr, 3, 3) || is(natives.type_delattr, 2, 2))) {
    if (count == 3) lifter.escape(arguments[2]);
    store_on_class(reinterpret_cast<PyTypeObject*>(arguments[0]), arguments[1],
                   count == 3 ? Borrowed(arguments[2]) : Borrowed());
    return Ref::share(Py_None);
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
    if (count == 0 && PyUnicode_CompareWithASCIIString(name.get(), "__hash__") == 0) {
      *handled = true;
      return hash_of(self, callable);
    }
    if (owner.get() == reinterpret_cast<PyObject*>(&PyBaseObject_Type)) {
      PyObject* with_self[] = {self.get(), count > 0 ? arguments[0] : nullptr, count > 1 ? arguments[1] : nullptr};
      for (PyObject* native : {natives.object_getattribute, natives.object_setattr, natives.object_delattr}) {
        Ref native_name = checked(PyObject_GetAttrString(native, "__name__"));
        if (PyUnicode_Compare(name.get(), native_name.get()) == 0)
          return call_reflective(native, with_self, count + 1, handled);
      }
    }
    if (owner.get() == reinterpret_cast<PyObject*>(&PyType_Type)) {  // of a metaclass
      PyObject* with_self[] = {self.get(), count > 0 ? arguments[0] : nullptr, count > 1 ? arguments[1] : nullptr};
      for (PyObject* native : {natives.type_setattr, natives.type_delattr}) {
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
    if (dict != nullptr && dict->shadow != nullptr && !dict->shadow->whole && lift::is_plain(arguments[0]) &&
        !lift::is_nan(arguments[0])) {
      *handled = true;
      Ref value = lifter.dict_item(*dict->shadow, arguments[0]);
      return value ? std::move(value) : Ref::share(count > 1 ? arguments[1] : Py_None);
    }
  }
  return {};
}

}  // namespace alternator::trace
