#include "py/names.h"

namespace alternator {

namespace names {
#define ALT_NAME(identifier) PyObject* identifier = nullptr;
#include "py/names.def"
#undef ALT_NAME
}  // namespace names

int init_names() {
  struct Row {
    PyObject** slot;
    const char* text;
  };
  const Row rows[] = {
#define ALT_NAME(identifier) {&names::identifier, #identifier},
#include "py/names.def"
#undef ALT_NAME
  };
  for (const Row& row : rows) {
    if (*row.slot == nullptr) *row.slot = PyUnicode_InternFromString(row.text);
    if (*row.slot == nullptr) return -1;
  }
  return 0;
}

}  // namespace alternator
