// Exceptions that a signal handler raises while torch code runs for a trace.
#pragma once

#include <string>

namespace alternator::trace {

class Tracer;

// The current exception belongs to the program, and the trace is invalid: stops it. Torch's frames in the traceback are
// ended here, in the thread state that they know: a context manager that was entered and not exited yet would otherwise
// restore, whenever the exception is deallocated, the state that it found in the middle of the trace.
[[noreturn]] void stop_for_interrupt(Tracer& tracer, const std::string& what);

// Whether the current exception is one: torch does not raise these itself, and the program did not raise it.
bool is_interrupt(const Tracer& tracer);

}  // namespace alternator::trace
