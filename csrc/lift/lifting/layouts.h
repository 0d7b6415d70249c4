// What the instances of a class consist of, beyond __dict__ and __slots__.
#pragma once

#include "py/ref.h"

namespace alternator::lift {

// A Python class without C state above `object` (or an exception): instances are __dict__ and __slots__ only.
bool has_plain_layout(PyTypeObject* type);
// The nearest base that is not a Python class: object, list, dict, BaseException, ...
PyTypeObject* layout_base(PyTypeObject* type);

}  // namespace alternator::lift
