// Torch calls that may fail because of their data, in a `try` of the program's that would see it. The graph that holds
// one must be able to run in vain: what it writes to for good stands in another graph.
#pragma once

#include "graph/record/program.h"
#include "interpreter/frame_state.h"

#include <optional>

namespace alternator::trace {

// Whether an exception of the instruction at this offset (in bytes) is seen by the function that it stands in: by an
// `except` that may catch it, a `finally`, a context manager that is not torch's.
bool is_observed(PyCodeObject* code, int offset);

// A node whose failure would be seen in the program, also if it is one that cannot fail by itself.
bool has_observed_nodes(const graph::Program& program);
// A node that may fail, and whose failure is seen in the program.
bool has_observed_failures(const graph::Program& program);
// A node that writes to what was there before, or acts otherwise.
bool has_lasting_writes(const graph::Program& program);
// A node that may fail because of its data.
bool may_fail(const graph::Program& program, const graph::Node& node);

// An exception of the instruction leaves the function without a look at its variables.
bool is_left_at_once(PyCodeObject* code, int offset);

// A trace begins at a stopped chain. `separate`: writes for good and failures that are seen have to be kept apart.
// `until`: it is to stop at the instruction that records this node.
void begin_separation(bool separate, const Chain& chain, std::optional<uint32_t> until = std::nullopt);
// The trace enters a `with` block, by the instruction at this index.
void note_manager(PyCodeObject* code, int index, Borrowed manager);
// After an instruction: the two would stand in one graph now, or the node is there.
bool is_to_separate(const graph::Program& program);
// Whether anybody wants to know.
extern thread_local bool separates __attribute__((tls_model("initial-exec")));

}  // namespace alternator::trace
