#include "fake/constants.h"

#include "fake/storage.h"

#include <ATen/ATen.h>

namespace alternator::fake {

at::Tensor make_constant(const SessionState& session, const at::Tensor& value) {
  const Inactive inactive;
  const c10::InferenceMode plain(false);
  at::Tensor copy = value.detach().to(c10::kCPU).clone(at::MemoryFormat::Preserve);
  at::Tensor fake = session.make(make_constant_storage(copy.storage()), keys_for(value.device(), false), copy.dtype(), value.device());
  static_cast<FakeTensorImpl*>(fake.unsafeGetTensorImpl())->copy_geometry(*copy.unsafeGetTensorImpl());
  return fake;
}

std::optional<at::Tensor> peek_constant(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!as_fake(tensor)) {
    if (impl->is_wrapped_number()) return tensor;
    return std::nullopt;
  }
  const c10::Storage* value = constant_of(*impl->unsafe_storage().unsafeGetStorageImpl());
  if (value == nullptr || impl->has_symbolic_sizes_strides()) return std::nullopt;
  const Inactive inactive;
  at::Tensor real = at::empty({0}, tensor.options().device(c10::kCPU).requires_grad(false));
  real.set_(*value, impl->storage_offset(), impl->sizes(), impl->strides());
  if (impl->is_conj()) real.unsafeGetTensorImpl()->_set_conj(true);
  if (impl->is_neg()) real.unsafeGetTensorImpl()->_set_neg(true);
  return real;
}

}  // namespace alternator::fake
