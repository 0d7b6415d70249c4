// Pre-existing objects that cannot change, or whose equal values are one object.
#pragma once

#include "py/ref.h"

namespace alternator::lift {

bool is_singleton(Borrowed value);
// Equal values of these plain ones are always one object.
bool is_shared(Borrowed plain);
// An object of a static builtin type without state, only identity, such as torch._C._VariableFunctions.
bool is_stateless(PyTypeObject* type);
// Immutable native objects that hold plain values only: compiled patterns, dates, sys.float_info and its like.
bool is_immutable_native(Borrowed value);
// In C since 3.12. Its name, bound and constraints never change; its attributes may.
bool is_type_parameter(PyTypeObject* type);
// An instance of a subclass of int, float, complex, str or bytes: the underlying value never changes.
bool is_value_subclass(PyTypeObject* type);

// The arguments that an operator.itemgetter, attrgetter or methodcaller was made with.
struct GetterArguments {
  Ref positional, named;  // a tuple; a dict, or null
};
GetterArguments getter_arguments(Borrowed getter);

}  // namespace alternator::lift
