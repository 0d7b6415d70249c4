// What the public API does not show of live objects: attributes kept inline, versions, the order of an OrderedDict.
// Reading only: nothing is allocated, no code of the user's runs, the error indicator is not looked at.
//
// Unlike the other headers of this room, this one may be included anywhere: it shows no internals.
#pragma once

#include "py/ref.h"

#include <cstdint>
#include <vector>

namespace alternator::cpython {

// --- the attributes that an object has of its own ---------------------------------------------------
// An object whose class statement made it keeps its attributes inline until somebody asks for its __dict__.

// Where the pointer to the instance dict is; null where the type has none. What it points at is null (or no object at
// all) while there is no dict yet: compare it, and read it through instance_dict().
PyObject** instance_dict_slot(PyObject* object);
// The instance dict, borrowed; null while there is none.
PyObject* instance_dict(PyObject* object);
// The attributes of an object that has no instance dict yet. All borrowed; none where nothing is kept inline.
PyObject* inline_attribute(PyObject* object, PyObject* name);  // `name` is an exact str; null: not there
Py_ssize_t inline_attribute_count(PyObject* object);
// In the order in which they were added. `position` starts at 0.
bool next_inline_attribute(PyObject* object, Py_ssize_t* position, PyObject** name, PyObject** value);

// All keys are exact str: looking one up compares text and runs nobody's __eq__. May say no where it is so.
bool has_str_keys_only(PyObject* dict);
// The entries of a dict for which has_str_keys_only() says no, with the hashes of their keys. `position` starts at 0.
bool next_hashed_entry(PyObject* dict, Py_ssize_t* position, PyObject** key, PyObject** value, Py_hash_t* hash);

// A type made in C, under this name: a program may call its own classes as it likes.
bool is_native(PyTypeObject* type, const char* name);
// What a types.MappingProxyType shows; borrowed.
PyObject* proxied(PyObject* proxy);
// The dict that a view (keys(), values(), items()) shows, borrowed; null: it is no view.
PyObject* viewed(PyObject* object);
// The own dict of a class, borrowed.
PyObject* own_dict(PyTypeObject* type);
// Takes a class out of the list of subclasses that a base (a heap type) keeps weakly. The class does not hear of later
// changes of the base any more. Unlike the rest, this writes, and may allocate.
void forget_subclass(PyTypeObject* base, PyTypeObject* type);

// Whether anybody listens to sys.audit.
bool has_audit_hooks();

// --- functools.lru_cache ----------------------------------------------------------------------------
// The cache of a function with an lru_cache, borrowed: keys are the arguments, as a tuple unless there is but one, an
// int or a str. Null: `object` is no such function, or arguments of different types are kept apart.
PyObject* lru_cache_dict(PyObject* object);
// What a value of that dict stands for.
PyObject* lru_cache_result(PyObject* object, PyObject* value);

// --- versions -----------------------------------------------------------------------------------------
// Another number after every change of the dict: no two states of any dicts have the same one.
// (The order of an OrderedDict is not part of it.)
uint64_t dict_version(PyObject* dict);
// Another number after every change of the class or of one of its bases. 0: it has none now, and proves nothing.
uint32_t type_version(PyTypeObject* type);

// --- OrderedDict ------------------------------------------------------------------------------------
// The keys in order, borrowed. `*position` starts as null. Only for PyODict_Check(object).
bool next_ordered_key(PyObject* ordered_dict, void** position, PyObject** key);
// -1 (SystemError set): this CPython's OrderedDict is not as we know it. To be called once at import.
int check_ordered_dict();

}  // namespace alternator::cpython
