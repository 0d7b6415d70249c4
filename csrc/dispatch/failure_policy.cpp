#include "dispatch/failure_policy.h"

#include "fake/saved_hooks.h"
#include "trace/soundness/observable_failures.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <algorithm>

namespace alternator::dispatch {

FailurePolicy choose_failure_policy(const backend::GraphRunner& graph, const backend::BackendTraits& backend,
                                    bool speculates) {
  if (speculates) return FailurePolicy::kSpeculates;
  const backend::GraphFacts& facts = graph.facts();
  // Saved-tensor hooks observe every run: there must be no discarded one.
  if (fake::has_saved_hooks()) return FailurePolicy::kRecover;
  // RNG state has to be saved and restored; that cost is paid only if a node may fail.
  const auto may_fail = [&](const graph::Node& node) { return node.live && trace::may_fail(graph.program(), node); };
  const bool restores_rng =
      !facts.draws_random || (!facts.has_separate_segments && std::ranges::any_of(graph.program().nodes, may_fail));
  if (facts.may_run_twice() && restores_rng) return FailurePolicy::kStartOver;
  if (graph.is_compiled() && backend.writes_last && !facts.acts && !facts.transforms && !facts.has_separate_segments)
    return FailurePolicy::kStartOverIfUnwritten;
  return FailurePolicy::kRecover;
}

SavedRngState::SavedRngState() {
  add(at::detail::getDefaultCPUGenerator());
  if (!at::globalContext().hasCUDA()) return;
  for (c10::DeviceIndex i = 0; i < static_cast<c10::DeviceIndex>(at::detail::getCUDAHooks().deviceCount()); i++) {
    if (at::detail::getCUDAHooks().hasPrimaryContext(i))
      add(at::globalContext().defaultGenerator(c10::Device(c10::kCUDA, i)));
  }
}

void SavedRngState::put_back() {
  for (auto& [generator, state] : states_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
}

void SavedRngState::add(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  states_.emplace_back(generator, generator.get_state());
}

}  // namespace alternator::dispatch
