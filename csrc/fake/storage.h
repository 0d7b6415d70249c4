// Storages of fakes. They have a size and an identity, never data: every access to their pointer throws.
#pragma once

#include "fake/torch_version.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <optional>

namespace alternator::fake {

// Turns a storage that a meta kernel allocated into a fake's: accessing its data throws from now on.
inline void forbid_data(c10::StorageImpl& storage) {
  storage.*member_of(access::ThrowOnConstData{}) = true;
  storage.*member_of(access::ThrowOnMutableData{}) = true;
  storage.*member_of(access::HasDataCheck{}) = true;
}
inline bool data_forbidden(const c10::StorageImpl& storage) { return storage.*member_of(access::ThrowOnConstData{}); }

// torch's kernels compare (null) data pointers to find overlapping writes: allow that for the duration of one kernel.
class AllowAddresses {
 public:
  AllowAddresses() = default;
  ~AllowAddresses() {
    for (c10::StorageImpl* storage : storages_) forbid_data(*storage);
  }
  AllowAddresses(const AllowAddresses&) = delete;
  AllowAddresses& operator=(const AllowAddresses&) = delete;

  void add(c10::StorageImpl& storage) {
    if (!data_forbidden(storage)) return;
    storage.*member_of(access::ThrowOnConstData{}) = false;
    storages_.push_back(&storage);
  }

 private:
  c10::SmallVector<c10::StorageImpl*, 4> storages_;  // kept alive by the arguments of the call
};

// A storage of `nbytes` for fakes.
c10::Storage make_storage(size_t nbytes);
// ... of an unbacked number.
c10::Storage make_storage(const c10::SymInt& nbytes);

// A storage whose value is known: `value` is a real CPU storage with no other writer.
c10::Storage make_constant_storage(c10::Storage value);

// The deleter that marks the storages that have, or had, a known value.
void free_constant(void* context);
inline bool may_be_constant(const c10::StorageImpl& storage) {
  return (storage.*member_of(access::DataPointer{})).get_deleter() == &free_constant;
}

// The known value of a storage, or null. It is shared: it must not be mutated.
const c10::Storage* constant_of(const c10::StorageImpl& storage);
// The storage's value is known from now on: `value`, which has no other writer.
void attach_constant(c10::StorageImpl& storage, c10::Storage value);
// The program wrote an unknown value.
void forget_constant(c10::StorageImpl& storage);

}  // namespace alternator::fake
