// Types that are found by import or by name, resolved once, before anything is checked.
#pragma once

#include "py/ref.h"

namespace alternator::lift {

struct KnownTypes {
  PyTypeObject* deque;
  PyTypeObject* default_dict;
  PyTypeObject* enum_class;  // enum.Enum
  PyTypeObject* enum_type;   // the metaclass
  PyTypeObject* abc_meta;
  PyTypeObject* partial;
  PyTypeObject* finalize;  // weakref.finalize
  PyTypeObject* simple_namespace;
  PyTypeObject* pattern;  // re.Pattern
  PyTypeObject* generic_alias;
  PyTypeObject* union_type;
  PyTypeObject* item_getter;
  PyTypeObject* attribute_getter;
  PyTypeObject* method_caller;
  // Null before 3.12, where these are Python classes.
  PyTypeObject* type_variable;
  PyTypeObject* parameter_specification;
  PyTypeObject* type_variable_tuple;
  PyTypeObject* key_wrapper;  // the class that functools.cmp_to_key() returns
  PyTypeObject* deque_iterator;
  PyTypeObject *module, *optimizer;  // torch.nn.Module, torch.optim.Optimizer
};
// Throws PyError.
const KnownTypes& known_types();

// A class that pybind11 made: the C++ state of an instance is not part of its tp_basicsize. Extension modules that were
// built against different versions of pybind11 have different metaclasses: only their name is common to all.
bool is_made_by_pybind(PyTypeObject* type);
// What a C module or pybind11 keeps as the "self" of a builtin function: the module, or a record whose type, again,
// each extension module has for itself.
bool is_self_of_function(PyObject* self);

}  // namespace alternator::lift
