// What cannot be recorded, as a Python exception: alternator._C.graph.RecordError. A tracer turns it into a break.
#pragma once

#include "py/error.h"

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

#include <string>

namespace alternator::graph {

// The class, created on first use.
Borrowed record_error_class();

// Sets RecordError and throws PyError.
[[noreturn]] void record_error(const std::string& message);

// Runs code that calls torch from C++: its exceptions (the fakes' among them) become Python's, thrown as PyError.
template <class Body>
auto with_torch_errors(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (torch::PyTorchError& error) {
    PyErr_SetString(error.python_type(), error.what());
  } catch (const c10::Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
  }
  throw PyError();
}

}  // namespace alternator::graph
