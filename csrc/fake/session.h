// What a session keeps: the stand-ins of real tensors and what they share.
#pragma once

#include "fake/fake.h"
#include "fake/tensor_impl.h"

#include <c10/core/Storage.h>
#include <c10/util/flat_hash_map.h>

namespace alternator::fake {

class SessionState {
 public:
  explicit SessionState(Options options);
  ~SessionState();
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  // The active session of this thread, or of the thread that started this one's backward pass.
  static SessionState* current();

  uint64_t id() const { return id_; }
  const Options& options() const { return options_; }

  at::Tensor fake_of(const at::Tensor& real);
  at::Tensor real_of(const at::Tensor& fake) const;

  void record(Failure failure) { failure_ = std::move(failure); }

  // A fake over `storage` with the geometry still to be set.
  at::Tensor make(c10::Storage storage, c10::DispatchKeySet keys, caffe2::TypeMeta dtype, c10::Device device) const {
    return at::Tensor(c10::make_intrusive<FakeTensorImpl>(std::move(storage), keys, dtype, device, id_));
  }
  // The fake of what a meta kernel returned; a fake is returned as it is.
  at::Tensor adopt(const at::Tensor& meta, c10::Device device) const;

  std::optional<Failure> failure_;
  Session::Counts counts_;

 private:
  friend class Active;
  friend class Inactive;

  struct Twin {
    at::Tensor real, fake;
  };
  at::Tensor mirror(const at::Tensor& real);
  const c10::Storage& storage_of(const at::Tensor& real);
  const c10::VariableVersion& version_of(const at::Tensor& real);

  uint64_t id_;
  Options options_;
  ska::flat_hash_map<c10::TensorImpl*, Twin> twins_;
  ska::flat_hash_map<c10::TensorImpl*, c10::TensorImpl*> reals_;
  // Keyed by the addresses of parts of real tensors, which `twins_` keeps alive.
  ska::flat_hash_map<c10::StorageImpl*, c10::Storage> storages_;
  ska::flat_hash_map<const void*, c10::VariableVersion> versions_;
};

}  // namespace alternator::fake
