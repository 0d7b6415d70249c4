// What a signal's handler raises while code of torch's runs for a trace.
#pragma once

#include <string>

namespace alternator::trace {

class Tracer;

// The exception that is set is the program's to see, and the trace is none: stops it. Torch's frames that the exception
// holds end here, in the thread's state that they know: a context manager that was entered and not left yet would put
// back, whenever the exception dies, what it found in the middle of the trace.
[[noreturn]] void stop_for_interrupt(Tracer& tracer, const std::string& what);

// Whether what is set is such an exception: torch raises none of these by itself, and the program did not.
bool is_interrupt(const Tracer& tracer);

}  // namespace alternator::trace
