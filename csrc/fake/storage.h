// Storages of fakes. They have a size and an identity, never data: every way to their pointer throws.
#pragma once

#include "fake/version.h"

#include <ATen/core/Tensor.h>

#include <optional>

namespace alternator::fake {

// Makes a storage that a meta kernel allocated a fake's: reading or writing its data throws from now on.
inline void forbid_data(c10::StorageImpl& storage) {
  storage.*member_of(access::ThrowOnConstData{}) = true;
  storage.*member_of(access::ThrowOnMutableData{}) = true;
  storage.*member_of(access::HasDataCheck{}) = true;
}
inline bool data_forbidden(const c10::StorageImpl& storage) { return storage.*member_of(access::ThrowOnConstData{}); }

// torch's kernels compare (null) data pointers to find overlapping writes: let them, for the time of one kernel.
class AllowAddresses {
 public:
  explicit AllowAddresses(c10::StorageImpl* storage) : storage_(storage) {
    if (storage_ != nullptr) storage_->*member_of(access::ThrowOnConstData{}) = false;
  }
  ~AllowAddresses() {
    if (storage_ != nullptr) forbid_data(*storage_);
  }
  AllowAddresses(AllowAddresses&& other) noexcept : storage_(std::exchange(other.storage_, nullptr)) {}
  AllowAddresses& operator=(AllowAddresses&&) = delete;
  AllowAddresses(const AllowAddresses&) = delete;
  AllowAddresses& operator=(const AllowAddresses&) = delete;

 private:
  c10::StorageImpl* storage_;
};

// A storage of `nbytes` for fakes.
c10::Storage make_storage(size_t nbytes);

// A storage whose value is known: `value` is a real CPU storage that nobody else writes.
c10::Storage make_constant_storage(c10::Storage value);

// The known value of a storage, or null. It is shared: never write it.
const c10::Storage* constant_of(const c10::StorageImpl& storage);
// The program wrote a known value (`value` replaces the old one) or something that is not known.
void replace_constant(c10::StorageImpl& storage, c10::Storage value);
void forget_constant(c10::StorageImpl& storage);

}  // namespace alternator::fake
