// The rows of rebuild.def, looked up by type.
#pragma once

#include "py/error.h"

#include <string>

namespace alternator::replay {

class Builder;
struct Recipe;

struct Kind {
  const char* name;
  Recipe (*describe)(Builder&, Borrowed object);  // null: never
  const char* never;                              // the noun for its message, if it cannot be reconstructed
};

// The row of this exact type; null: there is none.
const Kind* kind_of(PyTypeObject* type);

// The C type that defines the layout of the instances of `type`.
PyTypeObject* layout_of(PyTypeObject* type);

// "module.Class", for messages.
std::string full_name(PyTypeObject* type);

}  // namespace alternator::replay
