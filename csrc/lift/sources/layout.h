// The layout of instances of a class (object_fields.cpp).
#pragma once

#include "py/ref.h"

namespace alternator::lift {

// The nearest base that is not a Python class: object, list, dict, BaseException, ...
PyTypeObject* layout_base(PyTypeObject* type);

}  // namespace alternator::lift
