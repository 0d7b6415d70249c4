#include "fake/arguments.h"

#include "fake/constants.h"
#include "fake/errors.h"

namespace alternator::fake {

void ArgumentScan::refuse_escaped() const {
  fail(FailureKind::Escaped, op_.name, "an argument is a fake tensor of another trace");
}

std::optional<at::Tensor> ArgumentScan::add_real(const at::Tensor& tensor, bool written) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  // A Python number among tensors: torch wraps it, kernels read its type.
  if (impl->is_wrapped_number() && !written) {
    add_device(tensor.device(), 0);
    return std::nullopt;
  }
  const bool seen_by_python = impl->pyobj_slot()->load_pyobj() != nullptr;
  if (!seen_by_python && !written && impl->dim() == 0 && tensor.device().is_cpu() && tensor.layout() == at::kStrided) {
    // A scalar that a C++ composite made for itself.
    add_device(tensor.device(), 0);
    return make_constant(session_, tensor);
  }
  if (written || session_.options().real_tensors == RealTensors::Refuse) {
    fail(FailureKind::RealTensor, op_.name,
         written ? "a real tensor would be written while tracing" : "a real tensor is used while tracing");
  }
  at::Tensor fake = session_.fake_of(tensor);
  add_device(tensor.device(), tensor.dim());
  return fake;
}

}  // namespace alternator::fake
