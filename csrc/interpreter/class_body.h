// The rest of __build_class__, after the class body has run.
#pragma once

#include "cpython/version.h"

namespace alternator {

// `arguments` are those of __build_class__: body, name, bases..., keyword values; all bases are types.
// `cell` is the body's return value: the __class__ cell, or None.
Ref finish_class_body(PyObject* const* arguments, Py_ssize_t count, Borrowed keyword_names, Borrowed name_space,
                      Borrowed cell);

}  // namespace alternator
