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
  const char* never;                              // what it is, where it cannot be rebuilt
};

// The row of this very type; null: there is none.
const Kind* kind_of(PyTypeObject* type);

// The C type whose layout the instances of `type` have.
PyTypeObject* layout_of(PyTypeObject* type);

// "module.Class", for sentences.
std::string full_name(PyTypeObject* type);

}  // namespace alternator::replay
