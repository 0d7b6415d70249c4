// A generator that is not running, as values.
#pragma once

#include "interpreter/frame_state.h"

namespace alternator {

struct Suspended {
  Ref function;  // null: the generator has finished
  Ref code, name, qualified_name;
  int next = 0;
  int8_t state = 0;  // CPython's own word for it
  std::vector<Ref> locals, stack;
};
// Null, or why it cannot be told.
const char* describe_generator(Borrowed generator, Suspended* found);

// A finished generator of this code; nothing of the code runs.
Ref make_generator(Borrowed code, Borrowed name, Borrowed qualified_name);
// Puts a finished one where another stands. `values`: its locals, then its stack; null ones included.
void fill_generator(Borrowed generator, Borrowed function, int next, int state, PyObject* const* values, size_t count);

}  // namespace alternator
