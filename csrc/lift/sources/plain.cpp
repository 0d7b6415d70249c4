#include "lift/sources/plain.h"

#include "cpython/decimal_layout.h"
#include "cpython/objects.h"
#include "lift/sources/decimal_values.h"
#include "lift/sources/numpy_types.h"
#include "py/import.h"
#include "py/lasting.h"

#include <structmember.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/QScheme.h>
#include <torch/csrc/Size.h>

#include <cmath>
#include <cstring>

namespace alternator::lift {

bool is_enum_member(PyObject* object) {
  PyTypeObject* metaclass = Py_TYPE(Py_TYPE(object));
  return metaclass != &PyType_Type && PyType_IsSubtype(metaclass, known_types().enum_type) != 0;
}

// Members are in the class's table: {name: (member, docstring)}.
bool is_native_enum_member(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (Py_TYPE(type) == &PyType_Type || !is_made_by_pybind(type)) return false;
  static constinit Lasting<PyObject*> lasting;
  PyObject* name = lasting.get([] { return checked(PyUnicode_InternFromString("__entries")).release(); });
  PyObject* entries = PyDict_GetItemWithError(cpython::own_dict(type), name);
  if (entries == nullptr || !PyDict_CheckExact(entries)) return false;
  PyObject *key, *entry;
  for (Py_ssize_t position = 0; PyDict_Next(entries, &position, &key, &entry);) {
    if (PyTuple_CheckExact(entry) && PyTuple_GET_SIZE(entry) > 0 && PyTuple_GET_ITEM(entry, 0) == object) return true;
  }
  return false;
}

bool is_nan(PyObject* object) {
  if (PyFloat_CheckExact(object)) return std::isnan(PyFloat_AS_DOUBLE(object));
  if (!PyComplex_CheckExact(object)) return numpy_is_nan(object);
  const Py_complex number = PyComplex_AsCComplex(object);
  return std::isnan(number.real) || std::isnan(number.imag);
}

namespace {

// Far deeper than constants nest; beyond it, only the same object is equal.
constexpr int kMaxDepth = 64;

bool is_exact_builtin(PyTypeObject* type) {
  return type == &PyLong_Type || type == &PyUnicode_Type || type == &PyFloat_Type || type == &PyBool_Type ||
         type == &PyBytes_Type || type == &PyComplex_Type;
}

bool is_singleton(PyObject* object) {
  return object == Py_None || object == Py_True || object == Py_False || object == Py_Ellipsis ||
         object == Py_NotImplemented;
}

bool is_torch_singleton(PyTypeObject* type) {
  return type == &THPDtypeType || type == &THPLayoutType || type == &THPMemoryFormatType || type == &THPQSchemeType;
}

// start, stop, step of a range.
PyObject* range_part(PyObject* range, int part) {
  const PyMemberDef& member = PyRange_Type.tp_members[part];
  return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(range) + member.offset);
}

bool bits_equal(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// Two values of the same exact builtin type.
bool builtin_equal(PyTypeObject* type, PyObject* a, PyObject* b) {
  if (type == &PyFloat_Type) return bits_equal(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  if (type == &PyComplex_Type) {
    const Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
    return bits_equal(x.real, y.real) && bits_equal(x.imag, y.imag);
  }
  if (type == &PyUnicode_Type) {
    return PyUnicode_GET_LENGTH(a) == PyUnicode_GET_LENGTH(b) && PyUnicode_KIND(a) == PyUnicode_KIND(b) &&
           std::memcmp(PyUnicode_DATA(a), PyUnicode_DATA(b),
                       static_cast<size_t>(PyUnicode_GET_LENGTH(a)) * PyUnicode_KIND(a)) == 0;
  }
  if (type == &PyBytes_Type) {
    return PyBytes_GET_SIZE(a) == PyBytes_GET_SIZE(b) &&
           std::memcmp(PyBytes_AS_STRING(a), PyBytes_AS_STRING(b), static_cast<size_t>(PyBytes_GET_SIZE(a))) == 0;
  }
  if (type == &PyBool_Type) return false;  // two bools that are not the same object
  return Ref::steal(PyLong_Type.tp_richcompare(a, b, Py_EQ)).get() == Py_True;
}

bool equal(PyObject* a, PyObject* b, int depth);

bool is_struct_sequence(PyTypeObject* type) {
  static const reprfunc of_them = Py_TYPE(PySys_GetObject("float_info"))->tp_repr;
  return type->tp_repr == of_them && PyDict_GetItemString(cpython::own_dict(type), "n_fields") != nullptr;
}

// Including fields that are accessible by name only.
Py_ssize_t field_count(PyTypeObject* type) {
  return PyLong_AsSsize_t(PyDict_GetItemString(cpython::own_dict(type), "n_fields"));
}

bool is_moment(PyTypeObject* type) {
  return cpython::is_native(type, "datetime.date") || cpython::is_native(type, "datetime.timedelta") ||
         cpython::is_native(type, "datetime.datetime") || cpython::is_native(type, "datetime.time");
}

// The `fold` of a datetime or time: disambiguates repeated wall-clock times.
long fold_of(PyObject* moment) {
  Ref fold = Ref::steal(PyObject_GetAttrString(moment, "fold"));
  if (!fold) PyErr_Clear();
  return fold ? PyLong_AsLong(fold.get()) : 0;
}

bool items_equal(PyObject* const* a, PyObject* const* b, Py_ssize_t count, int depth) {
  for (Py_ssize_t i = 0; i < count; i++) {
    if (a[i] != b[i] && !equal(a[i], b[i], depth)) return false;
  }
  return true;
}

// The elements of a set in iteration order.
bool next_element(PyObject* set, Py_ssize_t* position, PyObject** element) {
  auto* s = reinterpret_cast<PySetObject*>(set);
  for (Py_ssize_t i = *position; i <= s->mask; i++) {
    const setentry& entry = s->table[i];
    if (entry.key == nullptr || entry.hash == -1) continue;  // unused, or removed
    *position = i + 1;
    *element = entry.key;
    return true;
  }
  return false;
}

// The items of a dict in iteration order.
class Items {
 public:
  explicit Items(PyObject* dict) : dict_(dict), ordered_(PyODict_Check(dict)) {}
  bool next(PyObject** key, PyObject** value) {
    if (!ordered_) return PyDict_Next(dict_, &position_, key, value) != 0;
    if (!cpython::next_ordered_key(dict_, &node_, key)) return false;
    *value = nullptr;
    KeySafety safety = KeySafety::kUnasked;
    find_item(dict_, *key, value, &safety);
    return *value != nullptr;
  }

 private:
  PyObject* dict_;
  bool ordered_;
  Py_ssize_t position_ = 0;
  void* node_ = nullptr;
};

bool equal(PyObject* a, PyObject* b, int depth) {
  if (a == b) return true;
  PyTypeObject* type = Py_TYPE(a);
  if (type != Py_TYPE(b)) return false;
  if (is_exact_builtin(type)) return builtin_equal(type, a, b);
  if (depth >= kMaxDepth) return false;
  if (type == &PyTuple_Type || type == &THPSizeType) {
    const Py_ssize_t count = PyTuple_GET_SIZE(a);
    return count == PyTuple_GET_SIZE(b) &&
           items_equal(&PyTuple_GET_ITEM(a, 0), &PyTuple_GET_ITEM(b, 0), count, depth + 1);
  }
  if (type == &PyList_Type) {
    const Py_ssize_t count = PyList_GET_SIZE(a);
    return count == PyList_GET_SIZE(b) &&
           (count == 0 || items_equal(&PyList_GET_ITEM(a, 0), &PyList_GET_ITEM(b, 0), count, depth + 1));
  }
  if (type == &PyDict_Type || type == &PyODict_Type) {
    if (PyDict_GET_SIZE(a) != PyDict_GET_SIZE(b)) return false;
    Items left(a), right(b);
    PyObject *key, *value, *other_key, *other_value;
    while (left.next(&key, &value)) {
      if (!right.next(&other_key, &other_value)) return false;
      if (!equal(key, other_key, depth + 1) || !equal(value, other_value, depth + 1)) return false;
    }
    return true;
  }
  if (type == &PySet_Type || type == &PyFrozenSet_Type) {
    if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) return false;
    Py_ssize_t left = 0, right = 0;
    PyObject *element, *other;
    while (next_element(a, &left, &element)) {
      if (!next_element(b, &right, &other) || !equal(element, other, depth + 1)) return false;
    }
    return true;
  }
  if (type == &PySlice_Type) {
    auto *x = reinterpret_cast<PySliceObject*>(a), *y = reinterpret_cast<PySliceObject*>(b);
    return equal(x->start, y->start, depth + 1) && equal(x->stop, y->stop, depth + 1) &&
           equal(x->step, y->step, depth + 1);
  }
  if (type == &PyRange_Type) {
    for (int part = 0; part < 3; part++) {
      if (!equal(range_part(a, part), range_part(b, part), depth + 1)) return false;
    }
    return true;
  }
  if (type == &THPDeviceType) {
    return reinterpret_cast<THPDevice*>(a)->device == reinterpret_cast<THPDevice*>(b)->device;
  }
  if (is_decimal(a)) return cpython::same_decimal(a, b);
  if (is_struct_sequence(type)) {
    if (!is_native_value(a) || !is_native_value(b)) return a == b;
    for (Py_ssize_t i = 0; i < field_count(type); i++) {
      if (!equal(PyStructSequence_GET_ITEM(a, i), PyStructSequence_GET_ITEM(b, i), depth + 1)) return false;
    }
    return true;
  }
  if (is_moment(type)) {
    const SavedError outer;
    const int same = PyObject_RichCompareBool(a, b, Py_EQ);
    PyErr_Clear();
    return same == 1 && is_native_value(b) && fold_of(a) == fold_of(b);
  }
  return is_numpy_number(a) && numpy_equal(a, b);
}

}  // namespace

bool is_native_value(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (is_struct_sequence(type)) {
    for (Py_ssize_t i = 0; i < field_count(type); i++) {
      PyObject* field = PyStructSequence_GET_ITEM(object, i);
      if (field == nullptr || !is_plain(field)) return false;
    }
    return true;
  }
  if (!is_moment(type)) return false;
  if (!cpython::is_native(type, "datetime.datetime") && !cpython::is_native(type, "datetime.time")) return true;
  Ref zone = checked(PyObject_GetAttrString(object, "tzinfo"));
  return zone.get() == Py_None;
}

bool plain_equal(PyObject* a, PyObject* b) { return equal(a, b, 0); }

bool is_plain(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (is_exact_builtin(type) || is_singleton(object) || is_torch_singleton(type) || type == &THPDeviceType) return true;
  if (type == &PyRange_Type) return true;  // its parts are ints, whatever it was made from
  if (type == &PySlice_Type) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    return is_plain(slice->start) && is_plain(slice->stop) && is_plain(slice->step);
  }
  if (type == &THPSizeType) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++) {
      if (!PyLong_CheckExact(PyTuple_GET_ITEM(object, i))) return false;
    }
    return true;
  }
  return is_numpy_number(object) || is_numpy_dtype(object) || is_enum_member(object) || is_native_enum_member(object);
}

Py_ssize_t container_length(PyObject* object) {
  if (PyList_Check(object)) return PyList_GET_SIZE(object);
  if (PyTuple_Check(object)) return PyTuple_GET_SIZE(object);
  if (PyDict_Check(object)) return PyDict_GET_SIZE(object);
  if (PyAnySet_Check(object)) return PySet_GET_SIZE(object);
  if (PyObject_TypeCheck(object, known_types().deque)) return Py_SIZE(object);
  return -1;
}

// --- contents -------------------------------------------------------------------------------------------

Ref frozen_contents(Borrowed container) {
  PyObject* object = container.get();
  PyTypeObject* type = container.type();
  if (type == &PyList_Type) return checked(PyList_AsTuple(object));
  if (type == known_types().deque) return checked(PySequence_Tuple(object));
  if (type == &PySet_Type) {
    Ref contents = checked(PyTuple_New(PySet_GET_SIZE(object)));
    Py_ssize_t position = 0;
    PyObject* element;
    for (Py_ssize_t i = 0; next_element(object, &position, &element); i++) {
      PyTuple_SET_ITEM(contents.get(), i, Ref::share(element).release());
    }
    return contents;
  }
  if (type == &PyDict_Type || type == &PyODict_Type || type == known_types().default_dict) {
    Ref contents = checked(PyTuple_New(2 * PyDict_GET_SIZE(object)));
    Items items(object);
    PyObject *key, *value;
    Py_ssize_t i = 0;
    while (i < PyTuple_GET_SIZE(contents.get()) && items.next(&key, &value)) {
      PyTuple_SET_ITEM(contents.get(), i++, Ref::share(key).release());
      PyTuple_SET_ITEM(contents.get(), i++, Ref::share(value).release());
    }
    ALT_CHECK(i == PyTuple_GET_SIZE(contents.get()), "a dict whose keys cannot be looked up");
    return contents;
  }
  if (is_array(object)) return contents_of_array(container);
  return {};
}

bool contents_equal(PyObject* object, PyTypeObject* type, PyObject* contents) {
  if (Py_TYPE(object) != type) return false;
  if (is_array(object)) return array_has(object, contents);
  PyObject* const* wanted = &PyTuple_GET_ITEM(contents, 0);
  const Py_ssize_t count = PyTuple_GET_SIZE(contents);
  if (PyDict_Check(object)) {
    if (2 * PyDict_GET_SIZE(object) != count) return false;
    Items items(object);
    PyObject *key, *value;
    for (Py_ssize_t i = 0; i < count; i += 2) {
      if (!items.next(&key, &value) || !equal(wanted[i], key, 1) || !equal(wanted[i + 1], value, 1)) return false;
    }
    return true;
  }
  if (container_length(object) != count) return false;
  if (PyList_Check(object)) return count == 0 || items_equal(wanted, &PyList_GET_ITEM(object, 0), count, 1);
  if (PyAnySet_Check(object)) {
    Py_ssize_t position = 0;
    PyObject* element;
    for (Py_ssize_t i = 0; i < count; i++) {
      if (!next_element(object, &position, &element) || !equal(wanted[i], element, 1)) return false;
    }
    return true;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    Ref element = Ref::steal(type->tp_as_sequence->sq_item(object, i));
    if (!element || !equal(wanted[i], element.get(), 1)) return false;
  }
  return true;
}

// --- keys -------------------------------------------------------------------------------------------------

namespace {

// Whether each of the key's parts passes; the only part of a non-container is itself.
template <class Test>
bool each_part(PyObject* key, int depth, Test&& test) {
  if (test(key)) return true;
  if (depth >= kMaxDepth) return false;
  if (PyTuple_CheckExact(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++) {
      if (!each_part(PyTuple_GET_ITEM(key, i), depth + 1, test)) return false;
    }
    return true;
  }
  if (PyFrozenSet_CheckExact(key)) {
    Py_ssize_t position = 0;
    PyObject* element;
    while (next_element(key, &position, &element)) {
      if (!each_part(element, depth + 1, test)) return false;
    }
    return true;
  }
  return false;
}

// == on it runs C code only.
bool compares_natively(PyObject* key) {
  return each_part(key, 0, [](PyObject* part) {
    const richcmpfunc compare = Py_TYPE(part)->tp_richcompare;
    return compare == PyUnicode_Type.tp_richcompare || compare == PyLong_Type.tp_richcompare ||
           compare == PyBaseObject_Type.tp_richcompare || compare == PyFloat_Type.tp_richcompare ||
           compare == PyBytes_Type.tp_richcompare || compare == PyComplex_Type.tp_richcompare || compare == nullptr ||
           is_singleton(part) || Py_TYPE(part) == &THPDeviceType || is_numpy_number(part);
  });
}

}  // namespace

bool hashes_natively(PyObject* key) {
  return each_part(key, 0, [](PyObject* part) {
    const hashfunc hash = Py_TYPE(part)->tp_hash;
    return hash == PyUnicode_Type.tp_hash || hash == PyLong_Type.tp_hash || hash == PyBaseObject_Type.tp_hash ||
           hash == PyFloat_Type.tp_hash || hash == PyBytes_Type.tp_hash || hash == PyComplex_Type.tp_hash ||
           is_singleton(part) || is_torch_singleton(Py_TYPE(part)) || Py_TYPE(part) == &THPDeviceType ||
           is_numpy_number(part);
  });
}

namespace {

bool find_same_key(PyObject* dict, PyObject* key, PyObject** value) {
  Py_ssize_t position = 0;
  PyObject *found, *held;
  while (PyDict_Next(dict, &position, &found, &held)) {
    if (found != key) continue;
    *value = held;
    return true;
  }
  return false;
}

bool has_safe_keys(PyObject* dict) {
  if (cpython::has_str_keys_only(dict)) return true;
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Next(dict, &position, &key, &value)) {
    if (!compares_natively(key)) return false;
  }
  return true;
}

// A key with a known hash among keys of which some have a Python __eq__: that runs only if the hashes are equal, and
// then the answer is unknown.
Found find_among_unsafe(PyObject* dict, PyObject* key, PyObject** value) {
  const Py_hash_t wanted = PyObject_Hash(key);
  Found answer = Found::kNo;
  Py_ssize_t position = 0;
  PyObject *found, *held;
  Py_hash_t hash;
  while (cpython::next_hashed_entry(dict, &position, &found, &held, &hash)) {
    if (hash != wanted) continue;
    if (found == key || (compares_natively(found) && PyObject_RichCompareBool(found, key, Py_EQ) == 1)) {
      *value = held;
      return Found::kYes;
    }
    if (!compares_natively(found)) answer = Found::kUnknown;
  }
  return answer;
}

}  // namespace

Found find_item(PyObject* dict, PyObject* key, PyObject** value, KeySafety* safety) {
  *value = nullptr;
  if (PyUnicode_CheckExact(key) && cpython::has_str_keys_only(dict)) {
    *value = PyDict_GetItemWithError(dict, key);
    return *value != nullptr ? Found::kYes : Found::kNo;
  }
  if (*safety == KeySafety::kUnasked) *safety = has_safe_keys(dict) ? KeySafety::kSafe : KeySafety::kUnsafe;
  if (compares_natively(key) && hashes_natively(key)) {
    if (*safety == KeySafety::kUnsafe) return find_among_unsafe(dict, key, value);
    *value = PyDict_GetItemWithError(dict, key);
    return *value != nullptr ? Found::kYes : Found::kNo;
  }
  if (find_same_key(dict, key, value)) return Found::kYes;
  // An object with object.__eq__ equals only itself, so it is not there; for others only their class can decide.
  const bool equals_itself_only = Py_TYPE(key)->tp_richcompare == PyBaseObject_Type.tp_richcompare;
  return equals_itself_only && *safety == KeySafety::kSafe ? Found::kNo : Found::kUnknown;
}

Found find_element(PyObject* set, PyObject* element) {
  if (!compares_natively(element) || !hashes_natively(element)) return Found::kUnknown;
  const Py_hash_t wanted = PyObject_Hash(element);
  Found answer = Found::kNo;
  PyObject* found;
  Py_hash_t hash;
  for (Py_ssize_t position = 0; _PySet_NextEntry(set, &position, &found, &hash) != 0;) {
    if (hash != wanted) continue;
    if (found == element) return Found::kYes;
    if (!compares_natively(found)) {
      answer = Found::kUnknown;
    } else if (PyObject_RichCompareBool(found, element, Py_EQ) == 1) {
      return Found::kYes;
    }
  }
  return answer;
}

}  // namespace alternator::lift
