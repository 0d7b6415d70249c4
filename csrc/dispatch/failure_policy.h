// What happens to a call whose graph raises.
#pragma once

#include "backend/graph_runner.h"

namespace alternator::dispatch {

enum class FailurePolicy : uint8_t {
  kRecover,               // side effects may have happened: the call resumes where the node failed, or raises
  kStartOver,             // none has: the call falls back to eager, which raises the right error at the right line
  kStartOverIfUnwritten,  // ... unless an input was mutated, which its version counter then shows
  kSpeculates,            // as kStartOver, whoever raises: the exception may be due to a speculated check that fails
};

// The policy for a graph whose runner is known. `speculates`: it has speculated checks.
FailurePolicy choose_failure_policy(const backend::GraphRunner& graph, const backend::BackendTraits& backend,
                                    bool speculates);
// A call falls back to eager if the graph raises.
inline bool starts_over(FailurePolicy policy) {
  return policy == FailurePolicy::kStartOver || policy == FailurePolicy::kSpeculates;
}

// Saves the default generators' state to restore it.
class SavedRngState {
 public:
  SavedRngState();
  void put_back();

 private:
  void add(at::Generator generator);
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

}  // namespace alternator::dispatch
