// Classes that the call made: reconstructed each time, without running their metaclass, __init_subclass__ or
// __set_name__ a second time. The effects of those in the trace are in the class and in the recorded side effects.
#include "replay/builder.h"

#include "cpython/objects.h"
#include "lift/sources/known_types.h"
#include "py/import.h"

namespace alternator::replay::recipes {

// Attributes that type.__new__ adds to the class itself.
static bool is_generated(PyTypeObject* type, Borrowed value) {
  if (value.type() != &PyGetSetDescr_Type && value.type() != &PyMemberDescr_Type) return false;
  return value.as<PyDescrObject>()->d_type == type;
}

// type.__new__ calls __init_subclass__ of the bases: it must have no effect.
static void check_init_subclass(PyTypeObject* type) {
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(type->tp_mro); i++) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    if (PyDict_GetItemString(cpython::own_dict(base), "__init_subclass__") == nullptr) continue;
    // Enum's only forwards.
    if (base == &PyBaseObject_Type || base == lift::known_types().enum_class) return;
    throw CannotRebuild("the class " + full_name(type) + " cannot be reconstructed: its base " + full_name(base) +
                        " has an __init_subclass__");
  }
}

static void check_metaclass(PyTypeObject* type) {
  PyTypeObject* meta = Py_TYPE(type);
  const char* why = nullptr;
  Ref mro = checked(PyUnicode_InternFromString("mro"));
  if (meta->tp_basicsize != PyType_Type.tp_basicsize || meta->tp_itemsize != PyType_Type.tp_itemsize) {
    why = " keeps fields of its own";
  } else if (_PyType_Lookup(meta, mro.get()) != PyDict_GetItem(cpython::own_dict(&PyType_Type), mro.get())) {
    why = " orders its bases itself";
  }
  if (why != nullptr) {
    throw CannotRebuild("the class " + full_name(type) + " cannot be reconstructed: its metaclass " + full_name(meta) +
                        why);
  }
}

// Setting the attribute must not call a setter of the metaclass.
static void check_setter(PyTypeObject* type, Borrowed name) {
  PyObject* found = _PyType_Lookup(Py_TYPE(type), name.get());
  if (found == nullptr || Py_TYPE(found)->tp_descr_set == nullptr) return;
  if (Py_TYPE(found) == &PyGetSetDescr_Type && reinterpret_cast<PyDescrObject*>(found)->d_type == &PyType_Type) return;
  throw CannotRebuild("the class " + full_name(type) + " cannot be reconstructed: its metaclass has a setter for " +
                      PyUnicode_AsUTF8(name.get()));
}

static bool is_plain_slots(Borrowed slots) {
  return PyUnicode_Check(slots.get()) || PyTuple_CheckExact(slots.get()) || PyList_CheckExact(slots.get()) ||
         PyDict_CheckExact(slots.get());
}

// abc keeps its registry and caches in a separate object, which cannot be copied.
static bool is_abc(PyTypeObject* type) { return PyDict_GetItemString(cpython::own_dict(type), "_abc_impl") != nullptr; }

static void check_abc(PyTypeObject* type) {
  Ref abc = import_module("_abc");
  Ref dump = checked(PyObject_CallMethod(abc.get(), "_get_dump", "O", type));
  if (PyObject_Size(PyTuple_GetItem(dump.get(), 0)) != 0) {
    throw CannotRebuild("the class " + full_name(type) + " cannot be reconstructed: classes were registered with it");
  }
}

Recipe made_class(Builder& /*builder*/, Borrowed object) {
  auto* type = object.as<PyTypeObject>();
  ALT_CHECK((type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0, "a static type is never made in a trace");
  auto* heap = object.as<PyHeapTypeObject>();
  check_metaclass(type);
  check_init_subclass(type);
  if (is_abc(type)) check_abc(type);

  Recipe recipe;
  Ref names = checked(PyList_New(0));
  Ref slots;
  bool before_generated = true;
  PyObject *name, *value;
  for (Py_ssize_t position = 0; PyDict_Next(cpython::own_dict(type), &position, &name, &value) != 0;) {
    if (!PyUnicode_CheckExact(name)) cannot_rebuild(object, "its namespace has a key that is no str");
    if (is_generated(type, value)) {
      before_generated = false;
      continue;
    }
    // Names are in insertion order; those before the generated ones come from the class body.
    if (before_generated) check_status(PyList_Append(names.get(), name));
    if (PyUnicode_CompareWithASCIIString(name, "_abc_impl") == 0) continue;
    check_setter(type, name);
    if (before_generated && PyUnicode_CompareWithASCIIString(name, "__slots__") == 0) {
      if (!is_plain_slots(value)) cannot_rebuild(object, "its __slots__ cannot be read again");
      slots = Ref::share(value);
      continue;
    }
    recipe.fill.push_back({Op::kFillClass, {Ref::share(name), Ref::share(value)}});
  }
  const bool open_slots = slots && !PyUnicode_Check(slots.get()) && !PyTuple_Check(slots.get());
  if (is_abc(type)) recipe.fill.push_back({Op::kFillAbc, {}, 0, false, true});
  recipe.make = {Op::kClass,
                 {Ref::share(Py_TYPE(type)), Ref::share(heap->ht_name), Ref::share(type->tp_bases),
                  Ref::share(heap->ht_qualname), checked(PyList_AsTuple(names.get())), std::move(slots)}};
  recipe.make.hashes = open_slots;  // a list must be filled before it is read
  return recipe;
}

}  // namespace alternator::replay::recipes
