// numpy scalars in the arguments of a function: in this scope they are lifted as numpy scalar inputs
// (fake/numpy_scalar_input.h), under a guard on their class, so that all values share one entry. A trace that needs the
// value is restarted without this.
#pragma once

#include "lift/sources/source.h"

#include <unordered_map>

namespace alternator::lift {

class NumpyScalarInputs {
 public:
  explicit NumpyScalarInputs(bool wanted);
  ~NumpyScalarInputs();
  NumpyScalarInputs(const NumpyScalarInputs&) = delete;
  NumpyScalarInputs& operator=(const NumpyScalarInputs&) = delete;

  bool any() const { return !lifted_.empty(); }
  // In the innermost scope: the symbolic scalar, the same object whenever it is read. Null: it is lifted as a constant.
  static Ref find(Borrowed value, const Source* source, bool* is_new);

 private:
  bool wanted_;
  NumpyScalarInputs* outer_;
  std::unordered_map<const Source*, Ref> lifted_;
};

}  // namespace alternator::lift
