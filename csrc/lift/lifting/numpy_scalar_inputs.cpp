// numpy scalars in the arguments of a function.
#include "lift/lifting/numpy_scalar_inputs.h"

#include "fake/numpy_scalar_input.h"
#include "lift/sources/numpy_types.h"

#include <utility>

namespace alternator::lift {

static thread_local NumpyScalarInputs* numpy_scalar_inputs = nullptr;

NumpyScalarInputs::NumpyScalarInputs(bool wanted) : wanted_(wanted), outer_(std::exchange(numpy_scalar_inputs, this)) {}

NumpyScalarInputs::~NumpyScalarInputs() { numpy_scalar_inputs = outer_; }

Ref NumpyScalarInputs::find(Borrowed value, const Source* source, bool* is_new) {
  NumpyScalarInputs* scope = numpy_scalar_inputs;
  if (scope == nullptr || !scope->wanted_ || source->parent != nullptr || source->access != Access::kSlot) return {};
  const NumpyKind kind = numpy_kind(value.get());
  if (kind == NumpyKind::kNone || kind == NumpyKind::kBool) return {};
  Ref& number = scope->lifted_[source];
  *is_new = !number;
  if (!number) number = fake::make_numpy_scalar_input(value);
  return number;
}

}  // namespace alternator::lift
