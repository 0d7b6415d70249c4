// Hands the graph of a new entry to its backend.
#pragma once

#include "backend/graph_request.h"

namespace alternator::backend {

// alternator.handoff.Handoff, or any callable.
struct Backend {
  Ref callable;  // null: "eager"
  BackendTraits traits;

  Backend() = default;
  explicit Backend(Borrowed given);  // reads its `traits`: a tuple in the order of BackendTraits
  // Whether graphs may have numpy scalar inputs. May change: a backend that turns out to look into graphs compiles.
  bool takes_numpy_scalars() const;
};

// What a compiler has assumed, and the code that did: "inductor (utils/_sympy/functions.py:1 in f)".
struct Assumption {
  shapes::Expression condition;
  std::string origin;
};

struct Answer {
  Ref callable;  // null: the recorded program runs
  bool boxed = false;
  bool wants_numpy_constants = false;  // numpy scalar inputs must become constants: retrace
  std::vector<Assumption> conditions;  // on symbols, under which it may be called
  std::vector<uint32_t> specialize;    // these symbols must become constants: retrace
};
// Calls backend(request). It returns (callable, boxed): what runs the graph, and whether that takes its inputs as one
// list; of a graph with symbols (callable, boxed, [(condition, origin), ...]); or None: run the recorded program,
// uncompiled; or a list of the numbers of symbols that the backend needs as constants; or NotImplemented: the graph has
// numpy scalar inputs, and the backend needs them as constants.
Answer hand_over(const Backend& backend, const GraphRequest& request);

}  // namespace alternator::backend
