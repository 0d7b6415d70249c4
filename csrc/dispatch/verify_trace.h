// A second opinion on a trace with symbols: the same call is traced again with other sizes and numbers that satisfy its
// guards, and both traces must agree in everything. Fakes have concrete sizes: a place where one of them reached the
// program or the graph without a guard shows as a difference.
#pragma once

#include "trace/core/tracer.h"

namespace alternator::dispatch {

class Entry;

// `entry` was built from the trace of `tracer`, whose symbols it has; `until`: where it was cut, if it was. Throws
// NeedsStatic (build_entry.h) with the symbols that do not agree.
void verify_trace(const Chain& chain, const trace::Tracer& tracer, const trace::BreakPoint* until, const Entry& entry);

}  // namespace alternator::dispatch
