// The errors of fakes. They travel through torch's kernels as C++ exceptions and arrive in Python as the classes
// of the same names in alternator._C.fake. A tracer turns each of them into a break.
#pragma once

#include "fake/fake.h"

namespace alternator::fake {

class Error;  // fake/error_type.h: it brings pybind11 along

// Creates the Python classes on first use (the GIL is held): one for each FailureKind, and their base for nullopt.
PyObject* error_class(std::optional<FailureKind> kind);

// One call of the program, around which kernels may try and fail without the program's noticing.
class OutermostCall {
 public:
  OutermostCall();
  ~OutermostCall();
  OutermostCall(const OutermostCall&) = delete;
  OutermostCall& operator=(const OutermostCall&) = delete;
  // An error passes through this call.
  void failed(const Error& error) const;
};

// Throws; the failure is recorded on this thread's session once it leaves the program's own call.
[[noreturn]] void fail(FailureKind kind, std::string op, std::string reason);

}  // namespace alternator::fake
