// The scope of a call that torch makes by itself.
#pragma once

#include "trace/core/tracer.h"
#include "trace/torch/torch_function_modes.h"

#include <optional>

namespace alternator::trace {

// A torch call: paused, unless it is first dispatched to a mode or class of the program.
class TorchRuns {
 public:
  explicit TorchRuns(Tracer& tracer, bool is_overridden = false) {
    if (!is_overridden && !tracer.function_modes->is_active()) paused_.emplace(tracer);
  }

 private:
  std::optional<Paused> paused_;
};

}  // namespace alternator::trace
