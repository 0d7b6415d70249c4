#include "graph/record/record_error.h"

#include "py/lasting.h"

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

namespace alternator::graph {

Borrowed record_error_class() {
  static constinit Lasting<Ref> type;
  return type.get([] {
    return checked(PyErr_NewExceptionWithDoc(
        "alternator._C.graph.RecordError", "A torch call that cannot be recorded: it is a break, never a wrong graph.",
        PyExc_RuntimeError, nullptr));
  });
}

void record_error(const std::string& message) {
  PyErr_SetString(record_error_class().get(), message.c_str());
  throw PyError();
}

void rethrow_as_python_error() {
  try {
    throw;
  } catch (torch::PyTorchError& error) {
    PyErr_SetString(error.python_type(), error.what());
  } catch (const c10::Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
  }
  throw PyError();
}

}  // namespace alternator::graph
