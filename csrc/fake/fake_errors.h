// The errors of fakes. They pass through torch's kernels as C++ exceptions and arrive in Python as the classes of the
// same names in alternator._C.fake. A tracer turns each of them into a graph break.
#pragma once

#include "fake/fake.h"

namespace alternator::fake {

class Error;  // fake/error_type.h: it includes pybind11

// Creates the Python classes on first use (the GIL is held): one for each FailureKind, and their base for nullopt.
PyObject* error_class(std::optional<FailureKind> kind);

// One operator call of the program; the kernels inside may try and fail without the program seeing it.
class OutermostCall {
 public:
  OutermostCall();
  ~OutermostCall();
  OutermostCall(const OutermostCall&) = delete;
  OutermostCall& operator=(const OutermostCall&) = delete;
  // An error propagates out of this call.
  void failed(const Error& error) const;
};

// Throws; the failure is recorded in this thread's session once it leaves the program's call.
[[noreturn]] void fail(FailureKind kind, std::string op, std::string reason);

}  // namespace alternator::fake
