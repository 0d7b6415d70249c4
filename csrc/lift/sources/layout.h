// What instances of a class are made of (object_fields.cpp).
#pragma once

#include "py/ref.h"

namespace alternator::lift {

// The nearest base that is not a class statement's: object, list, dict, BaseException, ...
PyTypeObject* layout_base(PyTypeObject* type);

}  // namespace alternator::lift
