// Who sets the grad mode: the blocks of torch.no_grad() and its like (graph/record/grad_mode_nodes.h).
#pragma once

#include "graph/record/recorder.h"
#include "interpreter/frame_state.h"

namespace alternator::trace {

// Those that are open in stopped frames. Nothing follows from them but how a graph is written down: no guards.
void note_open_blocks(const Chain& chain, graph::Recorder& recorder);

// torch._C._set_grad_enabled was called by the frame that runs; the mode was `previous` before.
void note_grad_set(bool previous, graph::Recorder& recorder);

}  // namespace alternator::trace
