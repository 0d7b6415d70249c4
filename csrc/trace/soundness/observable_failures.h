// torch calls that may fail because of their data, inside a `try` of the program that would observe it. The graph that
// contains one that the program may catch must be discardable after it has failed: irreversible mutations belong to
// another graph. A `finally` lets the exception pass: where a call cannot be continued at the failed node, none of its
// Python side effects happens, neither what the `finally` would undo nor the `finally`.
#pragma once

#include "graph/record/program.h"
#include "interpreter/frame_state.h"

#include <optional>

namespace alternator::trace {

// Whether the function observes an exception of its instruction at this offset (in bytes): by an `except` that may
// catch it, a `finally`, or a context manager that is not torch's.
bool is_observed(PyCodeObject* code, int offset);

// Whether the program would observe the failure of a node, even if that node cannot fail by itself.
bool has_observed_nodes(const graph::Program& program);
// Whether nobody would notice if the program did not run: it returns nothing, has no side effect and cannot fail.
bool is_unneeded(const graph::Program& program);
// Whether there is a node that may fail and whose failure the program may catch.
bool has_caught_failures(const graph::Program& program);
// Whether there is a node with an irreversible mutation or another side effect.
bool has_lasting_writes(const graph::Program& program);
// Whether the node may fail because of its data.
bool may_fail(const graph::Program& program, const graph::Node& node);

// Whether an exception of the instruction leaves the function without any use of its variables.
bool is_left_at_once(PyCodeObject* code, int offset);

// A trace begins at a suspended frame chain. `separate`: irreversible mutations and failures that the program may
// catch must be in separate graphs. `until`: it has to stop at the instruction that records this node.
void begin_separation(bool separate, const Chain& chain, std::optional<uint32_t> until = std::nullopt);
// The trace enters a `with` block through the instruction at this index.
void note_manager(PyCodeObject* code, int index, Borrowed manager);
// To be called after an instruction: whether the graph now contains both, or the node of `until`.
bool is_to_separate(const graph::Program& program);
// Whether is_to_separate() has to be called at all.
extern thread_local bool separates __attribute__((tls_model("initial-exec")));

}  // namespace alternator::trace
