// Numbers that only a run knows (fake/unbacked_symbol.h) as torch knows them: torch.SymInt and torch.SymFloat of a
// ShapeEnv, one for each recording that has such numbers.
#pragma once

#include "fake/fake.h"
#include "fake/unbacked_symbol.h"

namespace alternator::graph {

using fake::is_symbol;

// What .item() of it gives is a number that only a run knows. A truth value is none: bool has no subclasses.
bool is_unbacked_scalar(const fake::Session& session, Borrowed object);
// A new torch.SymInt or SymFloat that nothing is known about.
Ref make_torch_symbol(Borrowed shape_env, bool is_float);
bool is_torch_symbol(Borrowed object);
// int, float or bool.
PyTypeObject* class_of_torch_symbol(Borrowed torch_symbol);
// The number that a torch symbol is known to be; null: none is.
Ref known_number(Borrowed torch_symbol);
// The symbols that are new in a call's result, and where they stand in it, as FX's metadata has it: {u0: ()}. Null:
// there are none. Throws PyError where one is nowhere in the result.
Ref new_bindings(fake::Session& session, Borrowed result);
// How many facts a run has to check so far.
size_t assert_count(Borrowed shape_env);

// In its scope, if `symbolic`, kernels that torch has in Python for numbers that nobody knows come before those in C++
// that want to know them: as in its own tracers.
class SymbolicKernels {
 public:
  explicit SymbolicKernels(bool symbolic);
  ~SymbolicKernels();
  SymbolicKernels(const SymbolicKernels&) = delete;
  SymbolicKernels& operator=(const SymbolicKernels&) = delete;

 private:
  c10::impl::PyInterpreter* before_;
};

}  // namespace alternator::graph
