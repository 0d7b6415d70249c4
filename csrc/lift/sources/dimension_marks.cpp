#include "lift/sources/dimension_marks.h"

#include "cpython/objects.h"
#include "lift/sources/plain.h"
#include "py/error.h"
#include "py/lasting.h"

#include <structmember.h>

namespace alternator::lift {

namespace {

constexpr long kMostDimensions = 64;

// The attributes that torch._dynamo.decorators sets.
struct Names {
  PyObject* any;
  PyObject *dynamic, *strict_unbacked, *weak, *unbacked, *propagated, *fixed;
  PyObject *range, *unbacked_bounds;
  PyObject *dim, *min, *max;  // of a _DimRange
};

const Names& names() {
  static constinit Lasting<Names> made;
  const auto name = [](const char* text) { return checked(PyUnicode_InternFromString(text)).release(); };
  return made.get([&] {
    return Names{name("_has_dynamo_dim_marking"),
                 name("_dynamo_dynamic_indices"),
                 name("_dynamo_strict_unbacked_indices"),
                 name("_dynamo_weak_dynamic_indices"),
                 name("_dynamo_unbacked_indices"),
                 name("_dynamo_propagated_dynamic_indices"),
                 name("_dynamo_static_indices"),
                 name("_dynamo_dynamic_range"),
                 name("_dynamo_unbacked_bounds"),
                 name("dim"),
                 name("min"),
                 name("max")};
  });
}

// Of the instance itself. Null: it has none, or it cannot be told.
PyObject* attribute(PyObject* object, PyObject* name) noexcept {
  PyObject* dict = cpython::instance_dict(object);
  if (dict == nullptr) return cpython::inline_attribute(object, name);
  PyObject* value = nullptr;
  KeySafety safety = KeySafety::kUnasked;
  return PyDict_Check(dict) && find_item(dict, name, &value, &safety) == Found::kYes ? value : nullptr;
}

// A field of a class with __slots__. Null: it has none.
Ref slot(PyObject* object, PyObject* name) {
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(object), name);
  if (descriptor == nullptr || !Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return {};
  if (!PyObject_TypeCheck(object, PyDescr_TYPE(descriptor))) return {};
  PyMemberDef* member = reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member;
  Ref value = Ref::steal(PyMember_GetOne(reinterpret_cast<const char*>(object), member));
  if (!value) PyErr_Clear();
  return value;
}

std::optional<int64_t> integer(PyObject* object) noexcept {
  if (object == nullptr || !PyLong_CheckExact(object)) return std::nullopt;
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow == 0 ? std::optional<int64_t>(value) : std::nullopt;
}

uint64_t bits_in(PyObject* tensor, PyObject* name) noexcept {
  PyObject* indices = attribute(tensor, name);
  if (indices == nullptr || !PyAnySet_Check(indices)) return 0;
  uint64_t bits = 0;
  Py_ssize_t position = 0;
  PyObject* index;
  Py_hash_t hash;
  while (_PySet_NextEntry(indices, &position, &index, &hash) != 0) {
    const std::optional<int64_t> dimension = integer(index);
    if (dimension && *dimension >= 0 && *dimension < kMostDimensions) bits |= uint64_t{1} << *dimension;
  }
  return bits;
}

void add_range(DimensionMarks& marks, PyObject* dimension, PyObject* low, PyObject* high) {
  const std::optional<int64_t> number = integer(dimension);
  if (!number || *number < 0 || *number >= kMostDimensions) return;
  const DimensionMarks::Range range{static_cast<uint16_t>(*number), integer(low), integer(high)};
  if (range.low || range.high) marks.ranges.push_back(range);
}

}  // namespace

DimensionMarks marks_of(Borrowed object) {
  PyObject* tensor = object.get();
  DimensionMarks marks;
  if (cpython::instance_dict(tensor) == nullptr && cpython::inline_attribute_count(tensor) == 0) return marks;
  const Names& name = names();
  marks.dynamic = bits_in(tensor, name.dynamic) | bits_in(tensor, name.strict_unbacked);
  marks.weak = bits_in(tensor, name.weak) | bits_in(tensor, name.unbacked) | bits_in(tensor, name.propagated);
  marks.fixed = bits_in(tensor, name.fixed) & ~(marks.dynamic | marks.weak);
  if (PyObject* ranges = attribute(tensor, name.range); ranges != nullptr && PyAnySet_Check(ranges)) {
    Py_ssize_t position = 0;
    PyObject* range;
    Py_hash_t hash;
    while (_PySet_NextEntry(ranges, &position, &range, &hash) != 0) {
      const Ref dim = slot(range, name.dim), min = slot(range, name.min), max = slot(range, name.max);
      add_range(marks, dim.get(), min.get(), max.get());
    }
  }
  if (PyObject* bounds = attribute(tensor, name.unbacked_bounds); bounds != nullptr && PyDict_CheckExact(bounds)) {
    Py_ssize_t position = 0;
    PyObject *dimension, *pair;
    while (PyDict_Next(bounds, &position, &dimension, &pair) != 0) {
      if (PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2)
        add_range(marks, dimension, PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1));
    }
  }
  return marks;
}

uint64_t dynamic_marks_of(PyObject* tensor) noexcept {
  const Names& name = names();
  if (attribute(tensor, name.any) == nullptr) [[likely]]
    return 0;
  return bits_in(tensor, name.dynamic) | bits_in(tensor, name.strict_unbacked) | bits_in(tensor, name.weak) |
         bits_in(tensor, name.unbacked);
}

}  // namespace alternator::lift
