// The steps between states as torch calls, in the form that backends know from TorchDynamo's graphs.
#pragma once

#include "graph/record/ambient_state.h"
#include "py/error.h"

#include <vector>

namespace alternator::graph {

struct StepCall {
  Borrowed function;           // lives as long as the process
  std::vector<Ref> arguments;  // for an exit: none, the result of the matching enter comes first
  bool takes_scope = false;    // an exit
  Ref keywords = {};           // a dict, or null
};

StepCall step_call(const Step& step);

}  // namespace alternator::graph
