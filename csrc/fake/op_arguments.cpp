#include "fake/op_arguments.h"

#include "fake/constants.h"
#include "fake/fake_errors.h"

namespace alternator::fake {

void ArgumentScan::refuse_escaped() const {
  fail(FailureKind::Escaped, op_.name, "an argument is a fake tensor of another trace");
}

namespace {

// Torch's C++ code creates small tensors without the dispatcher: scalars, and lists used as indices. No other owner
// exists: they have no Python object, no autograd history, and were not mutated.
bool is_temporary(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return impl->pyobj_slot()->load_pyobj() == nullptr && impl->device().is_cpu() && impl->layout() == at::kStrided &&
         impl->has_storage() && !impl->requires_grad() &&
         (!impl->version_counter().enabled() || impl->version_counter().current_version() == 0);
}

}  // namespace

std::optional<at::Tensor> ArgumentScan::add_real(const at::Tensor& tensor, bool written, bool may_be_scalar) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  // A Python scalar among tensors: torch wraps it, kernels read its type.
  if (impl->is_wrapped_number() && !written) {
    if (session_.unbacked_symbols) unknown_++;
    common_.add(tensor.device(), true);
    return std::nullopt;
  }
  if (!written && is_temporary(tensor)) {
    add_device(tensor.device(), impl->dim() == 0);
    known_++;
    return make_constant(session_, tensor);
  }
  if (written || session_.options().real_tensors == RealTensors::Refuse) {
    fail(FailureKind::RealTensor, op_.name,
         written ? "a real tensor would be written while tracing" : "a real tensor is used while tracing");
  }
  at::Tensor fake = session_.fake_of(tensor);
  unknown_++;
  add_device(tensor.device(), may_be_scalar && tensor.dim() == 0);
  return fake;
}

}  // namespace alternator::fake
