// Plain values, and how they are compared and looked up without running anybody's code.
#pragma once

#include "py/error.h"

#include <cstdint>
#include <string>

namespace alternator::lift {

// None, bool, int, float, complex, str, bytes, Ellipsis, NotImplemented, range, slice of such, dtype, device, layout,
// memory format, quantisation scheme, torch.Size, numbers of numpy and their types, enum members (pybind11's too):
// immutable, compared by value. Exact types only: an instance of a subclass may carry more.
bool is_plain(PyObject* object);
// An iterator over a tuple or a range: what it goes through cannot change.
bool is_fixed_iterator(PyObject* object);

// A float or complex (numpy's too) that is not equal to itself.
bool is_nan(PyObject* object);

// Exact type and bits: True is not 1, -0.0 is not 0.0, NaN is itself. Deep for tuples, lists, dicts, sets and
// frozensets of plain values, in their order of iteration; never calls a user's __eq__. Decimals too; other objects
// that are not plain are compared by identity.
bool plain_equal(PyObject* a, PyObject* b);

// A tuple of what a list, set or deque holds in order (keys and values in turns for a dict; for an array of numpy's see
// there): what a guard compares with later, since the container itself may change. Null: it is not one of these types
// exactly.
Ref frozen_contents(Borrowed container);
// Whether `object` is of that very type and holds this now.
bool contents_equal(PyObject* object, PyTypeObject* type, PyObject* contents);

// Looking up a key. Unknown: only the __hash__ or __eq__ of somebody's class could tell.
enum class Found : uint8_t { kNo, kYes, kUnknown };
// What is known of a dict's keys; starts as kUnasked. The answers hold while the dict is not changed.
enum class KeySafety : uint8_t { kUnasked, kSafe, kUnsafe };
Found find_item(PyObject* dict, PyObject* key, PyObject** value, KeySafety* safety);
Found find_element(PyObject* set, PyObject* element);
// hash() of it runs C code only, and does not fail.
bool hashes_natively(PyObject* key);

// How many things a list, tuple, dict, set, frozenset or deque (or an instance of a subclass) holds; -1: it is none of
// these.
Py_ssize_t container_length(PyObject* object);

// A text for messages, never longer than `limit` characters or so. Runs nobody's __repr__.
std::string show(PyObject* object, size_t limit = 80);

// Types that are found by import, and the checks that go with them. Throws PyError. Called by everything that needs
// them; once, before anything is checked.
struct KnownTypes {
  PyTypeObject* deque;
  PyTypeObject* default_dict;
  PyTypeObject* enum_type;  // the metaclass
  PyTypeObject* abc_meta;
  PyTypeObject* partial;
  PyTypeObject* finalize;     // of weakref
  PyTypeObject* key_wrapper;  // what functools.cmp_to_key() makes
  PyTypeObject* simple_namespace;
  PyTypeObject* deque_iterator;
};
const KnownTypes& known_types();

// A date, a time without a zone, a span of time, or a struct sequence (os.stat_result, sys.float_info) of plain values.
// They never change; plain_equal() knows them.
bool is_native_value(PyObject* object);

bool is_enum_member(PyObject* object);
// One of the members that an enumeration of pybind11's was made with, such as torch.nn.attention.SDPBackend.MATH.
bool is_native_enum_member(PyObject* object);

}  // namespace alternator::lift
