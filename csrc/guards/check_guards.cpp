// What each kind of guard checks.
#include "guards/guard_node.h"

#include "cpython/iterator_copies.h"
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
bool are_keys_of(PyObject* found, Access access, const std::vector<Pin>& wanted) {
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

bool is_function_of(PyObject* found, PyObject* code, PyObject* globals) {
  if (!PyFunction_Check(found)) return false;
  auto* function = reinterpret_cast<PyFunctionObject*>(found);
  return function->func_code == code && (globals == nullptr || function->func_globals == globals);
}

bool are_special_methods_of(PyObject* found, const SpecialMethods& wanted) {
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

// --- the check column of guards.def
// --------------------------------------------------------------------------------------

// What a check is made of: the value that was found, by which accessor, and the memo of its container.
struct Subject {
  PyObject* found;
  Access access;
  lift::Memo* memo;
};

bool has_type(const Check& check, const Subject& subject) {
  PyTypeObject* type = lift::is_stand_in(subject.access, subject.found) ? &PyDict_Type : Py_TYPE(subject.found);
  return reinterpret_cast<PyObject*>(type) == check.object;
}

bool is_object(const Check& check, const Subject& subject) { return check.first.is(subject.found); }

bool equals(const Check& check, const Subject& subject) {
  if (PyObject* type = check.second.get())
    return lift::contents_equal(subject.found, reinterpret_cast<PyTypeObject*>(type), check.object);
  return lift::plain_equal(check.object, subject.found);
}

bool matches_tensor(const Check& check, const Subject& subject) { return check.tensor->matches(subject.found); }

bool has_length(const Check& check, const Subject& subject) {
  return length_of(subject.found, subject.access) == check.number;
}

bool has_truth(const Check& check, const Subject& subject) {
  const Py_ssize_t length = length_of(subject.found, subject.access);
  return length >= 0 && (length > 0) == (check.number != 0);
}

bool has_set_layout(const Check& check, const Subject& subject) {
  return PyAnySet_Check(subject.found) && cpython::set_layout(subject.found) == static_cast<uint64_t>(check.number);
}

bool has_keys(const Check& check, const Subject& subject) {
  return are_keys_of(subject.found, subject.access, check.keys);
}

Found found_key(const Check& check, const Subject& subject) {
  if (check.first.get() == nullptr) return Found::kUnknown;  // the key has died
  return find_key(subject.found, subject.access, check.object, subject.memo);
}
bool has_key(const Check& check, const Subject& subject) { return found_key(check, subject) == Found::kYes; }
bool lacks_key(const Check& check, const Subject& subject) { return found_key(check, subject) == Found::kNo; }

bool runs_code(const Check& check, const Subject& subject) {
  return is_function_of(subject.found, check.object, check.second.get());
}

bool is_unobserved(const Check&, const Subject& subject) { return !lift::is_finalization_observable(subject.found); }

bool yields(const Check& check, const Subject& subject) {
  return static_cast<bool>(cpython::look_ahead(subject.found, check.number - 1).value);
}
bool ends(const Check& check, const Subject& subject) {
  if (check.number > 0 && !cpython::look_ahead(subject.found, check.number - 1).value) return false;
  const cpython::Ahead end = cpython::look_ahead(subject.found, check.number);
  return end.known && !end.value;
}

bool has_special_methods(const Check& check, const Subject& subject) {
  return are_special_methods_of(subject.found, *check.methods);
}

// kAbsent is checked when the step is taken: where that finds something, the guard fails. Relations are of two nodes.
bool elsewhere(const Check&, const Subject&) { return false; }

}  // namespace

bool Check::holds(PyObject* found, Access access, lift::Memo* memo) const {
  const Subject subject{found, access, memo};
  switch (kind) {
#define ALT_GUARD(kind, sentence, keeps, check, ...) \
  case GuardKind::kind:                              \
    return check(*this, subject);
#include "lift/sources/guards.def"
#undef ALT_GUARD
  }
  return false;
}

}  // namespace alternator::guards
