// How a trace ends before its program does, and where it may be cut.
#pragma once

#include "report/event.h"

#include <cstdint>
#include <string>

namespace alternator::trace {

// Thrown inside the tracer where the program cannot be followed; becomes `Tracer::stopped`.
struct Stop {
  report::Reason reason;
  std::string context;
};
[[noreturn]] void stop(report::Reason reason, std::string context = {});

// A point where a trace may be cut: an instruction that was being executed when the trace stopped.
struct BreakPoint {
  uint64_t number = 0;  // of the instruction, in the order of execution
  uint64_t path = 0;    // a hash of the executed path: the same program takes the same path again
};

}  // namespace alternator::trace
