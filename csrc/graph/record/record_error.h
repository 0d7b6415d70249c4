// A call that cannot be recorded, as a Python exception: alternator._C.graph.RecordError. A tracer turns it into a
// graph break.
#pragma once

#include "py/error.h"

#include <string>

namespace alternator::graph {

// The class, created on first use.
Borrowed record_error_class();

// Sets RecordError and throws PyError.
[[noreturn]] void record_error(const std::string& message);

// Called in a catch-all: converts the C++ exception in flight (including those of fakes) into Python's, thrown as
// PyError.
[[noreturn]] void rethrow_as_python_error();

// Runs code that calls torch from C++.
template <class Body>
auto with_torch_errors(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    rethrow_as_python_error();
  }
}

}  // namespace alternator::graph
