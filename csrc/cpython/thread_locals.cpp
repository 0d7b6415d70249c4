#include "cpython/version.h"

#include "cpython/thread_locals.h"

#include "py/error.h"
#include "py/import.h"
#include "py/lasting.h"
#include "py/names.h"

namespace alternator::cpython {

namespace {

// As in Modules/_threadmodule.c, up to CPython 3.12.
struct Local {
  PyObject_HEAD PyObject* key;  // in the dict of a thread state
  PyObject *args, *keywords, *weak_references, *dummies, *callback;
};
struct Dummy {
  PyObject_HEAD PyObject* dict;
  PyObject* weak_references;
};

PyObject* dict_of(PyObject* local) {
  PyObject* all = PyThreadState_Get()->dict;
  PyObject* key = reinterpret_cast<Local*>(local)->key;
  PyObject* dummy = all != nullptr && key != nullptr ? PyDict_GetItemWithError(all, key) : nullptr;
  return dummy != nullptr ? reinterpret_cast<Dummy*>(dummy)->dict : nullptr;
}

bool is_as_known(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030D0000
  (void)type;
  return false;
#else
  if (type->tp_basicsize != sizeof(Local)) return false;
  Ref probe = checked(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(type)));
  PyObject* key = reinterpret_cast<Local*>(probe.get())->key;
  if (key == nullptr || !PyUnicode_CheckExact(key)) return false;
  Ref dict = checked(type->tp_getattro(probe.get(), names::__dict__));
  PyObject* all = PyThreadState_Get()->dict;
  PyObject* dummy = all != nullptr ? PyDict_GetItemWithError(all, key) : nullptr;
  return dummy != nullptr && Py_TYPE(dummy)->tp_basicsize == sizeof(Dummy) && dict_of(probe.get()) == dict.get();
#endif
}

// Null: its layout is not the one known here.
PyTypeObject* local_type() {
  static constinit Lasting<PyTypeObject*> type;
  return type.get([] {
    Ref found = checked(PyObject_GetAttrString(import_module("_thread").get(), "_local"));
    const bool known = PyType_Check(found.get()) && is_as_known(found.as<PyTypeObject>());
    return known ? reinterpret_cast<PyTypeObject*>(found.release()) : nullptr;
  });
}

}  // namespace

bool is_thread_local(PyTypeObject* type) {
  PyTypeObject* local = local_type();
  // A fast negative: this is called for every attribute that a guard reads.
  if (local == nullptr || type->tp_weaklistoffset != local->tp_weaklistoffset) return false;
  return PyType_IsSubtype(type, local) != 0;
}

PyObject* thread_dict(PyObject* local) {
  PyObject* dict = dict_of(local);
  return dict != nullptr && PyDict_CheckExact(dict) ? dict : nullptr;
}

Ref make_thread_dict(PyObject* local) { return Ref::steal(local_type()->tp_getattro(local, names::__dict__)); }

bool is_thread_local_slot(PyObject* method) {
  return Py_IS_TYPE(method, &PyWrapperDescr_Type) && reinterpret_cast<PyDescrObject*>(method)->d_type == local_type();
}

}  // namespace alternator::cpython
