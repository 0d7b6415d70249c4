// Binding a call's arguments to the slots of a function's frame.
#pragma once

#include "py/error.h"

#include <vector>

namespace alternator::dispatch {

// As CPython binds them; `slots` are all slots of the frame before its first instruction. False: CPython would refuse
// the call, or it is too unusual to be bound here: the function itself is to be called.
bool bind_arguments(Borrowed function, PyObject* const* arguments, size_t positional, Borrowed keyword_names,
                    std::vector<Ref>* slots);

}  // namespace alternator::dispatch
