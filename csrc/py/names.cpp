#include "py/names.h"

namespace alternator {

namespace names {
#define ALT_NAME(identifier) PyObject* identifier = nullptr;
#include "py/names.def"
#undef ALT_NAME
}  // namespace names

int init_names() {
#define ALT_NAME(identifier)                                                                                  \
  if (names::identifier == nullptr && (names::identifier = PyUnicode_InternFromString(#identifier)) == nullptr) \
    return -1;
#include "py/names.def"
#undef ALT_NAME
  return 0;
}

}  // namespace alternator
