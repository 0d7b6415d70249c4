#include "graph/errors.h"

#include "graph/lasting.h"

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

}  // namespace alternator::graph
