// Unbacked symbols (fake/unbacked_symbol.h) in torch's form: torch.SymInt and torch.SymFloat of a ShapeEnv, one for
// each recording that has such symbols.
#pragma once

#include "fake/fake.h"
#include "fake/unbacked_symbol.h"

namespace alternator::graph {

using fake::is_symbol;

// Whether .item() of the object returns an unbacked symbol. Not for a bool tensor: bool cannot be subclassed.
bool is_unbacked_scalar(const fake::Session& session, Borrowed object);
// A new, unconstrained torch.SymInt or SymFloat.
Ref make_torch_symbol(Borrowed shape_env, bool is_float);
bool is_torch_symbol(Borrowed object);
// int, float or bool.
PyTypeObject* class_of_torch_symbol(Borrowed torch_symbol);
// The constant value of a torch symbol; null: it has none.
Ref known_number(Borrowed torch_symbol);
// The new symbols in a call's result, and their paths in it, as FX's metadata has it: {u0: ()}. Null: there are none.
// Throws PyError if one is nowhere in the result.
Ref new_bindings(fake::Session& session, Borrowed result);
// How many deferred runtime asserts there are so far.
size_t assert_count(Borrowed shape_env);

// In its scope, if `symbolic`, torch's Python kernels for unbacked symbols take precedence over the C++ kernels that
// need concrete values: as in its own tracers.
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
