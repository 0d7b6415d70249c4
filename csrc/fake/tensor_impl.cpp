#include "fake/tensor_impl.h"

#include "fake/storage.h"

#include <c10/core/DispatchKeySet.h>
#include <c10/core/InferenceMode.h>

namespace alternator::fake {

using c10::DispatchKey;
using c10::DispatchKeySet;

c10::DispatchKeySet keys_for(c10::Device device, bool inference) {
  const c10::BackendComponent backend =
      c10::toBackendComponent(c10::computeDispatchKey(std::nullopt, std::nullopt, device));
  // The bit of Meta beside that of the device: torch's composites then do not access data ("subclass-like" tensors).
  DispatchKeySet keys = DispatchKeySet(backend) | DispatchKeySet(c10::BackendComponent::MetaBit) |
                        DispatchKeySet(DispatchKey::Dense) | DispatchKeySet(kFakeKey) |
                        c10::getAutocastRelatedKeySetFromBackend(backend);
  if (inference) return keys;
  return keys | DispatchKeySet(DispatchKey::ADInplaceOrView) | c10::getAutogradRelatedKeySetFromBackend(backend);
}

FakeTensorImpl::FakeTensorImpl(c10::Storage&& storage, c10::DispatchKeySet keys, caffe2::TypeMeta dtype,
                               c10::Device device, uint64_t session)
    // VIEW takes the key set unchanged; the other constructor would derive autograd keys for the storage's meta device.
    : TensorImpl(VIEW, std::move(storage), keys, dtype), fake_device_(device), session_(session) {
  set_custom_device(true);
}

void FakeTensorImpl::copy_geometry(const c10::TensorImpl& from) {
  if (from.has_symbolic_sizes_strides()) [[unlikely]] {
    set_sizes_and_strides(from.sym_sizes(), from.sym_strides(), from.sym_storage_offset());
    return;
  }
  // set_sizes_and_strides would recompute contiguity, which the other tensor already has.
  sizes_and_strides_.set_sizes(from.sizes());
  const auto strides = from.strides();
  std::copy(strides.begin(), strides.end(), sizes_and_strides_.strides_data());
  storage_offset_ = from.storage_offset();
  refresh_numel();
  refresh_contiguous();
}

template <class Version>
c10::intrusive_ptr<c10::TensorImpl> FakeTensorImpl::detached(Version&& version, bool allow_metadata_change) const {
  auto copy =
      c10::make_intrusive<FakeTensorImpl>(c10::Storage(storage_), key_set(), data_type_, fake_device_, session_);
  copy_tensor_metadata(this, copy.get(), std::forward<Version>(version), allow_metadata_change);
  copy->refresh_numel();
  copy->refresh_contiguous();
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> FakeTensorImpl::shallow_copy_and_detach(const c10::VariableVersion& version,
                                                                            bool allow_metadata_change) const {
  return detached(version, allow_metadata_change);
}

c10::intrusive_ptr<c10::TensorImpl> FakeTensorImpl::shallow_copy_and_detach(c10::VariableVersion&& version,
                                                                            bool allow_metadata_change) const {
  return detached(std::move(version), allow_metadata_change);
}

void FakeTensorImpl::shallow_copy_from(const c10::intrusive_ptr<c10::TensorImpl>& from) {
  const FakeTensorImpl* other = as_fake(from.get());
  TORCH_CHECK(other != nullptr, "a fake tensor cannot take the data of a real one");
  copy_tensor_metadata(other, this, version_counter(), allow_tensor_metadata_change());
  fake_device_ = other->fake_device_;
  refresh_numel();
  refresh_contiguous();
}

}  // namespace alternator::fake
