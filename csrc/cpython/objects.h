// The parts of live objects that the public API does not show: inline attributes, versions, the order of an
// OrderedDict. Read-only: nothing is allocated, no user code runs, the error indicator is neither read nor set.
//
// Unlike the other headers of this folder, this one may be included anywhere: it exposes no internals.
#pragma once

#include "py/ref.h"

#include <cstdint>
#include <vector>

namespace alternator::cpython {

// --- the attributes that an object has of its own ---------------------------------------------------
// An instance of a Python class keeps its attributes inline until its __dict__ is requested.

// The address of the instance dict pointer; null where the type has none. While there is no dict yet it holds null (or
// no valid object): only compare it, and read it through instance_dict().
PyObject** instance_dict_slot(PyObject* object);
// The instance dict, borrowed; null while there is none.
PyObject* instance_dict(PyObject* object);
// The attributes of an object that has no instance dict yet. All borrowed; null or 0 where nothing is stored inline.
PyObject* inline_attribute(PyObject* object, PyObject* name);  // `name` is an exact str; null: absent
Py_ssize_t inline_attribute_count(PyObject* object);
// In insertion order. `position` starts at 0.
bool next_inline_attribute(PyObject* object, Py_ssize_t* position, PyObject** name, PyObject** value);

// All keys are exact str: a lookup compares strings and runs no user __eq__. May return false although they are.
bool has_str_keys_only(PyObject* dict);
// The entries of a dict for which has_str_keys_only() is false, with the hashes of their keys. `position` starts at 0.
bool next_hashed_entry(PyObject* dict, Py_ssize_t* position, PyObject** key, PyObject** value, Py_hash_t* hash);

// A type implemented in C with this tp_name: user classes may have any name.
bool is_native(PyTypeObject* type, const char* name);
// The mapping that a types.MappingProxyType wraps; borrowed.
PyObject* proxied(PyObject* proxy);
// The dict of a view (keys(), values(), items()), borrowed; null: it is no view.
PyObject* viewed(PyObject* object);
// The class's __dict__, borrowed.
PyObject* own_dict(PyTypeObject* type);
// What all bindings of one native function or method share: its PyMethodDef, or the slot that a slot wrapper calls.
// Null: it is no such callable.
const void* native_definition(PyObject* callable);
// Removes a class from the weak list of subclasses of a base (a heap type). The class is not notified of later changes
// of the base. Unlike the rest, this writes, and may allocate.
void forget_subclass(PyTypeObject* base, PyTypeObject* type);

// Whether any sys.audit hook is installed.
bool has_audit_hooks();

// --- functools.lru_cache ----------------------------------------------------------------------------
// The cache dict of a functools.lru_cache wrapper, borrowed: keys are the arguments, as a tuple unless there is a
// single one that is an int or a str. Null: `object` is no such wrapper, or it was made with typed=True.
PyObject* lru_cache_dict(PyObject* object);
// The cached result that a value of that dict holds.
PyObject* lru_cache_result(PyObject* object, PyObject* value);

// --- versions -----------------------------------------------------------------------------------------
// A number that differs after every change of the dict: no two states of any dicts have the same one. (The order of an
// OrderedDict is not part of it.)
uint64_t dict_version(PyObject* dict);
// A number that differs after every change of the class or of one of its bases. 0: it has none now, and proves nothing.
uint32_t type_version(PyTypeObject* type);

// --- OrderedDict ------------------------------------------------------------------------------------
// The keys in order, borrowed. `*position` starts as null. Requires PyODict_Check(object).
bool next_ordered_key(PyObject* ordered_dict, void** position, PyObject** key);
// -1 (SystemError set): this CPython's OrderedDict has an unknown layout. To be called once at import.
int check_ordered_dict();

}  // namespace alternator::cpython
