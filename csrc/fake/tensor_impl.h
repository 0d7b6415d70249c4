// The TensorImpl of a fake: sizes, strides, dtype, autograd state and storage identity are those of a plain tensor; the
// device is the true one; there is no data.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <typeinfo>

namespace alternator::fake {

inline constexpr c10::DispatchKey kFakeKey = c10::DispatchKey::Fake;

// The keys of a plain tensor on `device`, and ours. In inference mode a new tensor has no autograd keys.
c10::DispatchKeySet keys_for(c10::Device device, bool inference);

class FakeTensorImpl final : public c10::TensorImpl {
 public:
  FakeTensorImpl(c10::Storage&& storage, c10::DispatchKeySet keys, caffe2::TypeMeta dtype, c10::Device device,
                 uint64_t session);

  // The device that the program sees, whether or not a meta kernel is running.
  c10::Device fake_device() const { return fake_device_; }
  uint64_t session() const { return session_; }

  // Copies sizes, strides and offset of a tensor that a meta kernel created.
  void copy_geometry(const c10::TensorImpl& from);
  // Of symbolic sizes and strides: they are known to have no gaps and no overlaps, and maybe to be in order.
  void assume_dense(bool contiguous) {
    c10::SymbolicShapeMeta& meta = *extra_meta_->symbolic_shape_meta_;
    meta.assume_non_overlapping_and_dense();
    if (contiguous) meta.assume_contiguous();
  }

  // While a meta kernel runs (our key is excluded on the thread) a fake reports "meta", as the kernel expects.
  c10::Device device_custom() const override {
    return c10::impl::tls_is_dispatch_key_excluded(kFakeKey) ? c10::Device(c10::kMeta) : fake_device_;
  }
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                              bool allow_metadata_change) const override;
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                              bool allow_metadata_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<c10::TensorImpl>& from) override;

 private:
  const char* tensorimpl_type_name() const override { return "alternator::fake::FakeTensorImpl"; }
  template <class Version>
  c10::intrusive_ptr<c10::TensorImpl> detached(Version&& version, bool allow_metadata_change) const;

  c10::Device fake_device_;
  uint64_t session_;
};

// Null unless it is a fake of ours. (torch 2.13 has other tensors with the same key.)
inline FakeTensorImpl* as_fake(c10::TensorImpl* impl) {
  if (!impl->key_set().has(kFakeKey) || typeid(*impl) != typeid(FakeTensorImpl)) return nullptr;
  return static_cast<FakeTensorImpl*>(impl);
}
inline FakeTensorImpl* as_fake(const at::TensorBase& tensor) {
  return tensor.defined() ? as_fake(tensor.unsafeGetTensorImpl()) : nullptr;
}

}  // namespace alternator::fake
