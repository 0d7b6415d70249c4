// The thread's state when a call leaves an entry, if the call changes it.
#pragma once

#include "replay/residual.h"
#include "trace/core/trace_result.h"

#include <optional>

namespace alternator::dispatch {

class ExitState {
 public:
  ExitState() = default;
  // `at_entry`: the state that the trace began in.
  ExitState(const trace::ThreadStateAtExit& at_exit, const graph::Ambient& at_entry);

  // Autocast scopes that the call opens and leaves open: the graph closes its own ones, and the cached casts of weights
  // are needed after the break.
  class OpenScopes {
   public:
    explicit OpenScopes(const ExitState& state);
    ~OpenScopes();
    OpenScopes(const OpenScopes&) = delete;
    OpenScopes& operator=(const OpenScopes&) = delete;
    void keep() { count_ = 0; }

   private:
    int count_;
  };

  // Before the graph runs.
  void drop_casts() const;
  // After it. The last of the results are the torch-function modes to be pushed.
  void apply(OpenScopes& scopes, replay::Residual::Results& results) const;
  bool changes_modes() const { return popped_modes_ + pushed_modes_ > 0; }

 private:
  std::optional<graph::Ambient> ambient_;
  std::optional<fake::CastSettings> casts_;
  int autocast_nesting_ = 0;
  bool clears_casts_ = false;
  size_t popped_modes_ = 0, pushed_modes_ = 0;
};

}  // namespace alternator::dispatch
