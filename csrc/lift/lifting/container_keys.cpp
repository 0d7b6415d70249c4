// Keys of dicts and elements of sets: how they are hashed, and in which order they are found.
#include "lift/lifting/container_keys.h"

#include "fake/python_tensor.h"
#include "lift/lifting/layouts.h"
#include "lift/lifting/lifter.h"

namespace alternator::lift {

// Whether hashing and comparing the key runs no Python code.
static bool has_native_hash(PyObject* key) {
  if (PyUnicode_CheckExact(key) || is_plain(key) || PyType_Check(key) || PyFunction_Check(key)) return true;
  if (PyTuple_CheckExact(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++) {
      if (!has_native_hash(PyTuple_GET_ITEM(key, i))) return false;
    }
    return true;
  }
  PyTypeObject* type = Py_TYPE(key);
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return !fake::is_tensor_object(key);
  return type->tp_hash == PyBaseObject_Type.tp_hash && type->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

// A tensor with Tensor.__hash__, which is its address.
static bool is_hashed_by_address(PyObject* key) {
  if (!fake::is_tensor_object(key)) return false;
  Ref name = checked(PyUnicode_InternFromString("__hash__"));
  PyObject* hash = _PyType_Lookup(Py_TYPE(key), name.get());
  return hash != nullptr && hash == _PyType_Lookup(reinterpret_cast<PyTypeObject*>(THPVariableClass), name.get());
}

bool is_instance_hashed_by_address(PyObject* key) {
  PyTypeObject* type = Py_TYPE(key);
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !is_plain(key) && !PyType_Check(key) &&
         type->tp_hash == PyBaseObject_Type.tp_hash && type->tp_richcompare == PyBaseObject_Type.tp_richcompare &&
         layout_base(type) == &PyBaseObject_Type && has_plain_layout(type);
}

bool check_keys(Borrowed container) {
  PyObject *key, *value;
  Py_hash_t hash;
  if (PyDict_Check(container.get())) {
    const bool plain_type = container.type() == &PyDict_Type || container.type() == known_types().default_dict;
    bool by_address = false;
    for (Py_ssize_t position = 0; PyDict_Next(container.get(), &position, &key, &value);) {
      if (has_native_hash(key)) {
        by_address = by_address || (plain_type && is_instance_hashed_by_address(key));
        continue;
      }
      if (!plain_type || !is_hashed_by_address(key))
        throw CannotLift(std::string("a dict with a key of type ") + Py_TYPE(key)->tp_name);
      by_address = true;
    }
    return !by_address;
  } else {
    for (Py_ssize_t position = 0; _PySet_NextEntry(container.get(), &position, &key, &hash) != 0;) {
      if (!has_native_hash(key))
        throw CannotLift(std::string("a set with an element of type ") + Py_TYPE(key)->tp_name);
    }
  }
  return true;
}

Ref keys_of(Borrowed dict) {
  if (!PyODict_Check(dict.get())) {
    Ref keys = checked(PyTuple_New(PyDict_GET_SIZE(dict.get())));
    PyObject *key, *value;
    Py_ssize_t count = 0;
    for (Py_ssize_t position = 0; PyDict_Next(dict.get(), &position, &key, &value);)
      PyTuple_SET_ITEM(keys.get(), count++, Py_NewRef(key));
    return keys;
  }
  Ref iterator = checked(PyODict_Type.tp_iter(dict.get()));
  Ref keys = checked(PyList_New(0));
  while (Ref key = Ref::steal(PyIter_Next(iterator.get()))) check_status(PyList_Append(keys.get(), key.get()));
  if (PyErr_Occurred()) throw PyError();
  return checked(PyList_AsTuple(keys.get()));
}

bool has_key(Borrowed dict, Borrowed key) {
  const int found = PyDict_Contains(dict.get(), key.get());
  if (found < 0) throw PyError();
  return found != 0;
}

}  // namespace alternator::lift
