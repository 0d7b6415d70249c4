// What the instances of a class consist of, beyond __dict__ and __slots__.
#include "lift/lifting/layouts.h"

#include "lift/sources/known_types.h"
#include "py/lasting.h"

namespace alternator::lift {

// The tp_dealloc of every class made by a class statement (a Python class).
static destructor class_statement_dealloc() {
  static constinit Lasting<destructor> dealloc;
  return dealloc.get([] {
    Ref type = Ref::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "probe"));
    return type ? type.as<PyTypeObject>()->tp_dealloc : nullptr;
  });
}

static bool from_class_statement(PyTypeObject* type) {
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 || type->tp_dealloc != class_statement_dealloc()) return false;
  // C heap types look the same except for the state that they add.
  PyTypeObject* base = type->tp_base;
  Py_ssize_t size = base->tp_basicsize + Py_SIZE(type) * static_cast<Py_ssize_t>(sizeof(PyObject*));
  if (type->tp_dictoffset != 0 && (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) == 0 && base->tp_dictoffset == 0)
    size += sizeof(PyObject*);
  if (type->tp_weaklistoffset != 0 && base->tp_weaklistoffset == 0) size += sizeof(PyObject*);
  return type->tp_basicsize <= size;
}

// A class made in C that adds nothing to its base: typing.Generic, from 3.12 on.
static bool adds_nothing(PyTypeObject* type) {
  PyTypeObject* base = type->tp_base;
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !is_made_by_pybind(type) &&
         type->tp_basicsize == base->tp_basicsize && type->tp_itemsize == base->tp_itemsize &&
         type->tp_dictoffset == base->tp_dictoffset && type->tp_weaklistoffset == base->tp_weaklistoffset &&
         type->tp_new == base->tp_new && type->tp_init == base->tp_init && type->tp_getattro == base->tp_getattro &&
         type->tp_setattro == base->tp_setattro;
}

PyTypeObject* layout_base(PyTypeObject* type) {
  while (type != nullptr && (from_class_statement(type) || adds_nothing(type))) type = type->tp_base;
  return type;
}

bool has_plain_layout(PyTypeObject* type) {
  PyTypeObject* base = layout_base(type);
  if (base == &PyBaseObject_Type) return true;
  if (base == &PyTuple_Type) return type != base;
  return PyType_IsSubtype(base, reinterpret_cast<PyTypeObject*>(PyExc_BaseException)) != 0;
}

}  // namespace alternator::lift
