// Pre-existing objects that cannot change, or whose equal values are one object.
#include "lift/lifting/immutable_values.h"

#include "lift/lifting/layouts.h"
#include "lift/sources/plain.h"

namespace alternator::lift {

bool is_singleton(Borrowed value) {
  PyObject* v = value.get();
  return v == Py_None || v == Py_True || v == Py_False || v == Py_Ellipsis || v == Py_NotImplemented;
}

bool is_shared(Borrowed plain) {
  PyObject* p = plain.get();
  if (is_singleton(plain) || is_enum_member(p) || is_native_enum_member(p)) return true;
  if (PyLong_CheckExact(p)) {
    int overflow = 0;
    const long number = PyLong_AsLongAndOverflow(p, &overflow);
    return overflow == 0 && number >= -5 && number <= 256;
  }
  return (PyUnicode_CheckExact(p) || PyBytes_CheckExact(p)) && PyObject_Length(p) == 0;
}

bool is_stateless(PyTypeObject* type) {
  return type != &PyBaseObject_Type && (type->tp_flags & (Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_HAVE_GC)) == 0 &&
         type->tp_itemsize == 0 && type->tp_basicsize == static_cast<Py_ssize_t>(sizeof(PyObject)) &&
         type->tp_dictoffset == 0;
}

static bool is_type_expression(Borrowed value);

// list[int], int | None: built from classes without a Python __eq__.
static bool is_type_operator(Borrowed value) {
  if (value.type() != known_types().generic_alias && value.type() != known_types().union_type) return false;
  Ref arguments = checked(PyObject_GetAttrString(value.get(), "__args__"));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments.get()); i++) {
    if (!is_type_expression(PyTuple_GET_ITEM(arguments.get(), i))) return false;
  }
  return true;
}

static bool is_type_expression(Borrowed value) {
  if (PyType_Check(value.get())) return value.type()->tp_hash == PyBaseObject_Type.tp_hash;
  return is_plain(value.get()) || is_type_operator(value);
}

// The __reduce__ of a methodcaller with keywords gives a partial that holds the name and the keywords.
GetterArguments getter_arguments(Borrowed getter) {
  Ref parts = checked(PyObject_CallMethod(getter.get(), "__reduce__", nullptr));
  Borrowed maker = PyTuple_GET_ITEM(parts.get(), 0), rest = PyTuple_GET_ITEM(parts.get(), 1);
  if (maker == Borrowed(reinterpret_cast<PyObject*>(getter.type()))) return {Ref::share(rest), {}};
  Ref first = checked(PyObject_GetAttrString(maker.get(), "args"));
  return {checked(PySequence_Concat(first.get(), rest.get())),
          checked(PyObject_GetAttrString(maker.get(), "keywords"))};
}

static bool is_getter(PyTypeObject* type) {
  return type == known_types().item_getter || type == known_types().attribute_getter ||
         type == known_types().method_caller;
}

// Its arguments are plain values.
static bool holds_plain_arguments(Borrowed getter) {
  const GetterArguments arguments = getter_arguments(getter);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments.positional.get()); i++) {
    if (!is_plain(PyTuple_GET_ITEM(arguments.positional.get(), i))) return false;
  }
  PyObject *name = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; arguments.named && PyDict_Next(arguments.named.get(), &at, &name, &value) != 0;) {
    if (!is_plain(value)) return false;
  }
  return true;
}

bool is_immutable_native(Borrowed value) {
  PyTypeObject* type = value.type();
  if (is_type_operator(value) || type == known_types().pattern || is_native_value(value.get())) return true;
  return is_getter(type) && holds_plain_arguments(value);
}

bool is_type_parameter(PyTypeObject* type) {
  const KnownTypes& types = known_types();
  return type == types.type_variable || type == types.parameter_specification || type == types.type_variable_tuple;
}

bool is_value_subclass(PyTypeObject* type) {
  PyTypeObject* base = layout_base(type);
  return base != type && (base == &PyLong_Type || base == &PyFloat_Type || base == &PyComplex_Type ||
                          base == &PyUnicode_Type || base == &PyBytes_Type);
}

}  // namespace alternator::lift
