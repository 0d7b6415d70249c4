// Which context managers set the grad mode: `with torch.no_grad()` blocks and their like
// (graph/record/grad_mode_nodes.h).
#pragma once

#include "graph/record/recorder.h"
#include "interpreter/frame_state.h"

namespace alternator::trace {

// Notes the blocks that are open in suspended frames. They only affect how the graph is printed, so they need no
// guards.
void note_open_blocks(const Chain& chain, graph::Recorder& recorder);

// The running frame has called torch._C._set_grad_enabled; the mode was `previous` before.
void note_grad_set(bool previous, graph::Recorder& recorder);

}  // namespace alternator::trace
