// What the choice of a runner, and of what happens where the graph fails, depends on.
#pragma once

#include "graph/record/program.h"

#include <string>

namespace alternator::backend {

struct GraphFacts {
  bool draws_random = false;      // from an RNG
  bool mutates = false;           // memory of a tensor or array
  bool acts = false;              // has side effects other than mutations
  bool writes_to_inputs = false;  // may mutate irreversibly
  bool transforms = false;        // enters and exits functorch transforms
  bool differentiates = false;    // calls autograd.grad
  bool has_arrays = false;        // computes with numpy arrays
  bool has_separate_segments = false;
  bool makes_subclasses = false;      // ... of torch.Tensor
  bool calls_third_party = false;     // runs a custom operator, an autograd.Function, a tensor subclass
  bool has_unbacked_symbols = false;  // there is a ShapeEnv
  bool computes_double = false;       // a tensor is of double precision
  bool has_runtime_asserts = false;   // ... with assertions that a run has to check; the recorded program does not

  // Of the inputs that it is compiled with.
  bool takes_subclass = false;      // a tensor subclass other than Parameter, which may override anything
  bool takes_numpy_scalar = false;  // see lift/lifting/numpy_scalar_inputs.h
  bool takes_generator = false;
  bool writes_shared_inputs = false;  // other inputs might be compilable
  std::string aot_incompatible;       // why; empty: it is compatible, or nothing compiles it

  GraphFacts() = default;
  explicit GraphFacts(const graph::Program& program);
  void look_at_inputs(const graph::Program& program, Borrowed inputs, bool may_compile);

  // If a run fails, or a speculated check does, the call may fall back to eager: no side effect has happened.
  bool may_run_twice() const { return !acts && !transforms && !writes_to_inputs && !(has_arrays && mutates); }
};

}  // namespace alternator::backend
