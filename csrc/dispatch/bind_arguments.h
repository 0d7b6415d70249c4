// Binding a call's arguments to the slots of a function's frame.
#pragma once

#include "py/error.h"

#include <vector>

namespace alternator::dispatch {

// Binds as CPython does; `slots` are all fast locals of the frame before its first instruction. False: CPython would
// raise a TypeError, or the call is too unusual to be bound here: call the function itself.
bool bind_arguments(Borrowed function, PyObject* const* arguments, size_t positional, Borrowed keyword_names,
                    std::vector<Ref>* slots);

}  // namespace alternator::dispatch
