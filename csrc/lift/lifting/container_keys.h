// Keys of dicts and elements of sets: how they are hashed, and in which order they are found.
#pragma once

#include "py/ref.h"

namespace alternator::lift {

// An instance of a Python class with object.__hash__. Another call may find another instance in its position.
bool is_instance_hashed_by_address(PyObject* key);
// False: tensors or such instances are among the keys. Throws CannotLift for keys whose hash runs Python code.
bool check_keys(Borrowed container);
// A dict's keys in its own order; bypasses methods of a subclass.
Ref keys_of(Borrowed dict);
// Bypasses a subclass's __contains__.
bool has_key(Borrowed dict, Borrowed key);

}  // namespace alternator::lift
