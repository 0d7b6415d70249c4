// What follows from a break reason: the flags column of reasons.def.
#pragma once

#include "report/event.h"

namespace alternator::report {

enum ReasonFlags : unsigned {
  kPlain = 0,
  // The call falls back to eager even with fullgraph=True: the program could not be written otherwise.
  kEager = 1 << 0,
  // Not tied to one instruction: breaking before it gains nothing.
  kAnywhere = 1 << 1,
  // What the instruction calls would break for the same reason.
  kCallees = 1 << 2,
  // Not worth an entry: the next call may well be captured.
  kTransient = 1 << 3,
  // A failure of our own: with fullgraph=True it is an error, but not a refusal of the program.
  kOurs = 1 << 4,
};

// Any of them.
bool has(Reason reason, unsigned flags);

}  // namespace alternator::report
