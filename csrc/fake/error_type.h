// The C++ exception of failed operators on fakes, for the few files that throw and catch it.
#pragma once

#include "fake/fake_errors.h"

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

}  // namespace alternator::fake
