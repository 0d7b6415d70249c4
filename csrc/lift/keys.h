// Keys of dicts, as far as it matters what looking them up runs (plain.cpp).
#pragma once

#include "py/ref.h"

namespace alternator::lift {

// Looking up any of the dict's keys runs no code of the user's: a private copy may be asked as often as we like.
bool has_quiet_keys(PyObject* dict);

}  // namespace alternator::lift
