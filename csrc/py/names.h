// Interned names that the core looks up: `names::__enter__` is the str object, alive for the whole process.
#pragma once

#include "py/ref.h"

namespace alternator {

namespace names {
#define ALT_NAME(identifier) extern PyObject* identifier;
#include "py/names.def"
#undef ALT_NAME
}  // namespace names

// Called once, when one of our extension modules is imported. -1: an exception is set.
int init_names();

}  // namespace alternator
