// Items, membership, truth, globals, identity.
#include "trace/tracer.h"

#include "trace/natives.h"

namespace alternator::trace {

static bool is_lazy_key(Borrowed key) { return lift::is_plain(key.get()) || PyType_Check(key.get()); }

// The shadow of a container whose slots are still lifted one by one.
static lift::Shadow* open_shadow(lift::Lifter& lifter, Borrowed container) {
  lift::Known* known = lifter.known(container);
  return known != nullptr && known->shadow != nullptr && !known->shadow->whole ? known->shadow : nullptr;
}

Ref Tracer::get_item(Borrowed container, Borrowed key) {
  if (lift::Shadow* shadow = open_shadow(lifter, container)) {
    if (PyDict_CheckExact(container.get()) && is_lazy_key(key)) {
      if (Ref value = lifter.dict_item(*shadow, key)) return value;
      cpython::set_key_error(key.get());
      throw PyError();
    }
    if (PyList_CheckExact(container.get()) && PyLong_CheckExact(key.get())) {
      lifter.guard_length(*shadow);
      const Py_ssize_t length = PyList_GET_SIZE(container.get());
      Py_ssize_t index = PyLong_AsSsize_t(key.get());
      if (index == -1 && PyErr_Occurred()) PyErr_Clear(), index = length;
      if (index < 0) index += length;
      if (index >= 0 && index < length) return lifter.list_item(*shadow, index);
    }
    lifter.lift_whole(*shadow);
  }
  check_use(container, "an item");
  lifter.escape(key);
  if (PyType_Check(container.get())) {  // Class[item]
    Ref name = checked(PyUnicode_InternFromString("__class_getitem__"));
    if (lifter.type_attribute(container.as<PyTypeObject>(), name) != nullptr &&
        (container.as<PyTypeObject>()->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) {
      PyObject* arguments[] = {nullptr, key.get()};
      return call(get_from_type(container.as<PyTypeObject>(), name), arguments + 1, 1, {});
    }
  }
  if (key.type() == &identity_type && !PyDict_Check(container.get())) stop(report::Reason::identity_number, "an index");
  if (graph::is_tensor(container)) {
    Paused paused(*this);
    return checked(PyObject_GetItem(container.get(), key.get()));
  }
  const LookingUp looking_up(key);
  return checked(PyObject_GetItem(container.get(), key.get()));
}

void Tracer::set_item(Borrowed container, Borrowed key, Borrowed value) {
  if (value) lifter.escape(value);
  if (lift::Shadow* shadow = open_shadow(lifter, container)) {
    if (value && PyDict_CheckExact(container.get()) && lift::is_plain(key.get()))
      return lifter.dict_store(*shadow, key, value);
    lifter.lift_whole(*shadow);
  }
  check_use(container, "an item");
  lifter.escape(key);
  if (key.type() == &identity_type && !PyDict_Check(container.get())) stop(report::Reason::identity_number, "an index");
  std::optional<Paused> paused;
  if (graph::is_tensor(container)) paused.emplace(*this);
  check_status(value ? PyObject_SetItem(container.get(), key.get(), value.get())
                     : PyObject_DelItem(container.get(), key.get()));
}

bool Tracer::contains(Borrowed container, Borrowed value) {
  if (lift::Shadow* shadow = open_shadow(lifter, container)) {
    if (PyDict_CheckExact(container.get()) && is_lazy_key(value)) return lifter.dict_contains(*shadow, value);
    lifter.lift_whole(*shadow);
  }
  check_use(container, "a membership test");
  lifter.escape(value);
  if (value.type() == &identity_type && !PyDict_Check(container.get()) && !PyAnySet_Check(container.get()) &&
      !PyList_Check(container.get()) && !PyTuple_Check(container.get())) {
    stop(report::Reason::identity_number, "a membership test");
  }
  const LookingUp looking_up(value);
  return alternator::contains(container, value).value();
}

Tri Tracer::truth(Borrowed value) {
  if (value.get() == Py_True || value.type() == &identity_type) return Tri(1);
  if (value.get() == Py_False || value.get() == Py_None) return Tri(0);
  if (lift::Shadow* shadow = open_shadow(lifter, value)) {
    lifter.guard_truth(*shadow);
    return Tri(PyObject_Length(value.get()) > 0 ? 1 : 0);
  }
  check_use(value, "a truth test");
  if (!graph::is_tensor(value)) return alternator::truth(value);
  const Tri answer = alternator::truth(value);
  if (answer.error()) {
    PyErr_Clear();
    stop(report::Reason::data_dependent, "the truth of a tensor");
  }
  return answer;
}

Ref Tracer::load_global(Borrowed globals, Borrowed builtins, Borrowed name) {
  if (Ref value = lifter.dict_item(lifter.name_space(globals), name)) return value;
  if (Ref value = lifter.dict_item(lifter.name_space(builtins), name)) return value;
  cpython::set_not_defined(name);
  throw PyError();
}

void Tracer::store_global(Borrowed globals, Borrowed name, Borrowed value) {
  lift::Shadow& name_space = lifter.name_space(globals);
  if (!value && !lifter.dict_item(name_space, name)) {
    cpython::set_key_error(name.get());
    throw PyError();
  }
  lifter.dict_store(name_space, name, value);
}

void Tracer::note_identity_test(Borrowed left, Borrowed right) {
  auto is_value = [](Borrowed object) {
    PyObject* o = object.get();
    return lift::is_plain(o) && o != Py_None && o != Py_True && o != Py_False && o != Py_Ellipsis &&
           o != Py_NotImplemented && !PyType_Check(o) && !PyBool_Check(o);
  };
  // Guards prove equality of plain values, not which object they are, unless that is asked.
  if (left == right && is_value(left) && lifter.has_one_origin(left)) return;
  if (is_value(left) && is_value(right) && lift::plain_equal(left.get(), right.get())) {
    if (lifter.guard_identity(left) && lifter.guard_identity(right)) return;
    stop(report::Reason::native_call, "an identity test of two equal constants");
  }
}

void Tracer::check_use(Borrowed value, const char* what) {
  if (value.type() == &identity_type) stop(report::Reason::identity_number, what);
  lift::Known* known = lifter.known(value);
  if (known != nullptr && known->opaque)
    stop(report::Reason::opaque_object, std::string(what) + " of " + value.type()->tp_name);
  if ((value.type()->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) lifter.use_special_methods(value.type());
}

// A text must not show a tensor's data or an object's address.
void Tracer::check_text(Borrowed value, int depth) {
  if (graph::is_tensor(value)) stop(report::Reason::tensor_text, {});
  if (lift::is_plain(value.get()) || depth > 4) return;
  lifter.escape(value);
  check_use(value, "text");
  if (PyList_Check(value.get()) || PyTuple_Check(value.get())) {
    Ref items = checked(PySequence_Tuple(value.get()));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); i++)
      check_text(PyTuple_GET_ITEM(items.get(), i), depth + 1);
    return;
  }
  if (PyDict_Check(value.get())) {
    PyObject *key, *item;
    for (Py_ssize_t position = 0; PyDict_Next(value.get(), &position, &key, &item);) {
      check_text(key, depth + 1);
      check_text(item, depth + 1);
    }
    return;
  }
  if (PyExceptionInstance_Check(value.get()) || PyType_Check(value.get()) || PyAnySet_Check(value.get())) return;
  if (value.type()->tp_repr == PyBaseObject_Type.tp_repr || PyFunction_Check(value.get()) ||
      PyMethod_Check(value.get())) {
    stop(report::Reason::identity_text, value.type()->tp_name);
  }
}

}  // namespace alternator::trace
