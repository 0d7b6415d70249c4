// A generator that is not running, as values.
#pragma once

#include "interpreter/frame_state.h"

namespace alternator {

struct Suspended {
  Ref function;  // null: the generator has finished
  Ref code, name, qualified_name;
  int next = 0;
  int8_t state = 0;  // CPython's gi_frame_state
  std::vector<Ref> locals, stack;
};
// Null, or why it cannot be described.
const char* describe_generator(Borrowed generator, Suspended* found);

// A finished generator of this code; none of the code runs.
Ref make_generator(Borrowed code, Borrowed name, Borrowed qualified_name);
// Puts a finished generator into the state of another one. `values`: its locals, then its stack; null ones included.
void fill_generator(Borrowed generator, Borrowed function, int next, int state, PyObject* const* values, size_t count);

}  // namespace alternator
