#include "backend/choose_runner.h"

namespace alternator::backend {

const char* name_of(Runner runner) {
  switch (runner) {
    case Runner::kRecorded:
      return "recorded";
    case Runner::kCompiled:
      return "compiled";
    case Runner::kCompiledInSegments:
      return "compiled in segments";
  }
  return nullptr;
}

// Why neither AOTAutograd nor a graph that is cut into segments gives what eager does; empty: both may.
static std::string incompatibility(const GraphFacts& facts) {
  if (!facts.aot_incompatible.empty()) return facts.aot_incompatible;
  if (facts.takes_subclass) return "a tensor subclass is among its inputs";
  if (facts.makes_subclasses) return "it makes a tensor of a subclass";
  return {};
}

RunnerChoice choose_runner(const GraphFacts& facts, const BackendTraits& backend) {
  if (!backend.has_compiler) return {};
  const bool segmented = facts.has_separate_segments && !backend.takes_whole_graphs;
  std::string why = backend.is_torch_backend || segmented ? incompatibility(facts) : std::string();
  if (!why.empty()) return {Runner::kRecorded, std::move(why)};
  if (!segmented) return {.runner = Runner::kCompiled};
  if (facts.has_unbacked_symbols)
    return {Runner::kRecorded, "unbacked symbols are not passed from one of its segments to the next"};
  return {.runner = Runner::kCompiledInSegments};
}

}  // namespace alternator::backend
