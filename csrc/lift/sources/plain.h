// Plain values, and how they are compared and looked up without running user code.
#pragma once

#include "lift/sources/known_types.h"
#include "py/error.h"

#include <cstdint>
#include <string>

namespace alternator::lift {

// None, bool, int, float, complex, str, bytes, Ellipsis, NotImplemented, range, slice of such, dtype, device, layout,
// memory format, quantization scheme, torch.Size, numpy scalars and their types, enum members (pybind11's too):
// immutable, compared by value. Exact types only: an instance of a subclass may have more state.
bool is_plain(PyObject* object);

// A float or complex (numpy's too) that is not equal to itself.
bool is_nan(PyObject* object);

// Exact type and bits: True is not 1, -0.0 is not 0.0, NaN is itself. Deep for tuples, lists, dicts, sets and
// frozensets of plain values, in iteration order; never calls a user's __eq__. Decimals too; other objects that are not
// plain are compared by identity.
bool plain_equal(PyObject* a, PyObject* b);

// A tuple of the elements of a list, set or deque in order (keys and values alternating for a dict; for a numpy array
// see contents_of_array()): what a guard compares with later, since the container itself may change. Null: it is not
// exactly of one of these types.
Ref frozen_contents(Borrowed container);
// Whether `object` is of that exact type and has these contents now.
bool contents_equal(PyObject* object, PyTypeObject* type, PyObject* contents);

// Looking up a key. Unknown: only a Python __hash__ or __eq__ could decide.
enum class Found : uint8_t { kNo, kYes, kUnknown };
// What is known of a dict's keys; starts as kUnasked. Valid as long as the dict is not mutated.
enum class KeySafety : uint8_t { kUnasked, kSafe, kUnsafe };
Found find_item(PyObject* dict, PyObject* key, PyObject** value, KeySafety* safety);
Found find_element(PyObject* set, PyObject* element);
// hash() of it runs C code only, and does not fail.
bool hashes_natively(PyObject* key);

// The length of a list, tuple, dict, set, frozenset or deque (or an instance of a subclass); -1: it is none of these.
Py_ssize_t container_length(PyObject* object);

// A description for messages of at most about `limit` characters. Runs no Python __repr__.
std::string show(PyObject* object, size_t limit = 80);

// A date, a time without a time zone, a timedelta, or a struct sequence (os.stat_result, sys.float_info) of plain
// values. Immutable; plain_equal() compares them.
bool is_native_value(PyObject* object);

bool is_enum_member(PyObject* object);
// An original member of a pybind11 enumeration, such as torch.nn.attention.SDPBackend.MATH.
bool is_native_enum_member(PyObject* object);

}  // namespace alternator::lift
