// The errors of fakes. They travel through torch's kernels as C++ exceptions and arrive in Python as the classes
// of the same names in alternator._C.fake. A tracer turns each of them into a break.
#pragma once

#include "fake/fake.h"

#include <torch/csrc/Exceptions.h>

namespace alternator::fake {

class Error : public torch::PyTorchError {
 public:
  explicit Error(Failure failure);
  const Failure& failure() const { return failure_; }
  PyObject* python_type() override;

 private:
  Failure failure_;
};

// Creates the Python classes on first use (the GIL is held): one for each FailureKind, and their base for nullopt.
PyObject* error_class(std::optional<FailureKind> kind);

// Records the failure on this thread's session, if there is one, and throws it.
[[noreturn]] void fail(FailureKind kind, std::string op, std::string reason);

}  // namespace alternator::fake
