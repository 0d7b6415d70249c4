// Fills a trace's own frames from a stopped chain: lifts the values of its slots.
#pragma once

#include "interpreter/frame_state.h"

namespace alternator::trace {

class Tracer;

void fill_frames(Tracer& tracer, const Chain& chain, Chain* filled);

}  // namespace alternator::trace
