// The checks of each guard kind.
#include "guards/guard_node.h"

#include "cpython/objects.h"
#include "cpython/set_tables.h"
#include "lift/sources/finalization.h"

namespace alternator::guards {

using lift::Access;
using lift::Found;
using lift::GuardKind;

namespace {

Py_ssize_t length_of(PyObject* found, Access access) {
  return lift::is_stand_in(access, found) ? lift::attribute_count(found) : lift::container_length(found);
}

Found find_key(PyObject* found, Access access, PyObject* key, lift::Memo* memo) {
  PyObject* value;
  if (lift::is_stand_in(access, found)) return lift::find_attribute(found, key, &value);
  if (PyDict_Check(found)) return lift::find_item(found, key, &value, &memo->keys);
  if (PyAnySet_Check(found)) return lift::find_element(found, key);
  return Found::kUnknown;
}

// The same keys in the same order.
bool has_keys(PyObject* found, Access access, const std::vector<Pin>& wanted) {
  const bool stands_in = lift::is_stand_in(access, found);
  if (!stands_in && !PyDict_Check(found)) return false;
  if (length_of(found, access) != static_cast<Py_ssize_t>(wanted.size())) return false;
  const bool ordered = !stands_in && PyODict_Check(found);
  Py_ssize_t position = 0;
  void* node = nullptr;
  for (const Pin& pin : wanted) {
    PyObject *key, *value;
    const bool there = ordered     ? cpython::next_ordered_key(found, &node, &key)
                       : stands_in ? lift::next_attribute(found, &position, &key, &value)
                                   : PyDict_Next(found, &position, &key, &value) != 0;
    PyObject* expected = pin.get();
    if (!there || expected == nullptr) return false;
    if (expected == lift::any_key()) continue;
    if (expected == lift::any_tensor() ? !lift::is_tensor(key) : !lift::plain_equal(expected, key)) return false;
  }
  return true;
}

bool runs_code(PyObject* found, PyObject* code, PyObject* globals) {
  if (!PyFunction_Check(found)) return false;
  auto* function = reinterpret_cast<PyFunctionObject*>(found);
  return function->func_code == code && (globals == nullptr || function->func_globals == globals);
}

bool has_special_methods(PyObject* found, const SpecialMethods& wanted) {
  if (!PyType_Check(found)) return false;
  auto* type = reinterpret_cast<PyTypeObject*>(found);
  const uint32_t version = cpython::type_version(type);
  if (version != 0 && version == wanted.version) return true;
  for (const auto& [name, attribute] : wanted.attributes) {
    PyObject* now = _PyType_Lookup(type, name.get());
    if (now == nullptr || !attribute.is(now)) return false;
  }
  if (type->tp_mro == nullptr) return false;  // its mro() runs
  // And no others. A class has some dozens of attributes, and this runs only after a change.
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); i++) {
    PyObject* dict = cpython::own_dict(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i)));
    Py_ssize_t position = 0;
    PyObject *name, *value;
    while (PyDict_Next(dict, &position, &name, &value)) {
      if (!lift::is_special_method_name(name)) continue;
      bool wants = false;
      for (const auto& attribute : wanted.attributes) {
        wants = attribute.first == name || lift::plain_equal(attribute.first.get(), name);
        if (wants) break;
      }
      if (!wants) return false;
    }
  }
  wanted.version = cpython::type_version(type);
  return true;
}

}  // namespace

bool Check::holds(PyObject* found, Access access, lift::Memo* memo) const {
  switch (kind) {
    case GuardKind::kType:
      if (lift::is_stand_in(access, found)) return object == reinterpret_cast<PyObject*>(&PyDict_Type);
      return reinterpret_cast<PyObject*>(Py_TYPE(found)) == object;
    case GuardKind::kIs:
      return first.is(found);
    case GuardKind::kEquals:
      if (second.get() != nullptr) {
        return lift::contents_equal(found, reinterpret_cast<PyTypeObject*>(second.get()), object);
      }
      return lift::plain_equal(object, found);
    case GuardKind::kTensor:
      return tensor->matches(found);
    case GuardKind::kLength:
      return length_of(found, access) == number;
    case GuardKind::kTruth: {
      const Py_ssize_t length = length_of(found, access);
      return length >= 0 && (length > 0) == (number != 0);
    }
    case GuardKind::kSetLayout:
      return PyAnySet_Check(found) && cpython::set_layout(found) == static_cast<uint64_t>(number);
    case GuardKind::kKeys:
      return has_keys(found, access, keys);
    case GuardKind::kHasKey:
      return first.get() != nullptr && find_key(found, access, object, memo) == Found::kYes;
    case GuardKind::kLacksKey:
      return first.get() != nullptr && find_key(found, access, object, memo) == Found::kNo;
    case GuardKind::kCode:
      return runs_code(found, object, second.get());
    case GuardKind::kUnobserved:
      return !lift::is_finalization_observable(found);
    case GuardKind::kSpecialMethods:
      return has_special_methods(found, *methods);
    case GuardKind::kAbsent:  // checked when the step is taken
    case GuardKind::kSame:    // relations
    case GuardKind::kDistinct:
      break;
  }
  return false;
}

}  // namespace alternator::guards
