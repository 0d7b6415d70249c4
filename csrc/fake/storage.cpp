#include "fake/storage.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>

namespace alternator::fake {
namespace {

// The context of a constant's DataPtr; the pointer itself is null.
struct Constant {
  c10::Storage value;  // empty once the program has overwritten it
};

Constant* extra_of(const c10::StorageImpl& storage) {
  if (!may_be_constant(storage)) return nullptr;
  return static_cast<Constant*>((storage.*member_of(access::DataPointer{})).get_context());
}

c10::Storage with_data(c10::DataPtr data, const c10::SymInt& nbytes) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes, std::move(data),
                                                       c10::GetAllocator(c10::kMeta), /*resizable=*/true);
  forbid_data(*storage);
  return c10::Storage(std::move(storage));
}

}  // namespace

void free_constant(void* context) { delete static_cast<Constant*>(context); }

c10::Storage make_storage(size_t nbytes) { return make_storage(c10::SymInt(static_cast<int64_t>(nbytes))); }
c10::Storage make_storage(const c10::SymInt& nbytes) {
  return with_data(c10::DataPtr(nullptr, c10::Device(c10::kMeta)), nbytes);
}

c10::Storage make_constant_storage(c10::Storage value) {
  const size_t nbytes = value.nbytes();
  auto* constant = new Constant{std::move(value)};
  return with_data(c10::DataPtr(nullptr, constant, &free_constant, c10::Device(c10::kMeta)),
                   c10::SymInt(static_cast<int64_t>(nbytes)));
}

const c10::Storage* constant_of(const c10::StorageImpl& storage) {
  const Constant* constant = extra_of(storage);
  return constant != nullptr && constant->value ? &constant->value : nullptr;
}

void attach_constant(c10::StorageImpl& storage, c10::Storage value) {
  if (Constant* constant = extra_of(storage)) {
    constant->value = std::move(value);
    return;
  }
  auto* constant = new Constant{std::move(value)};
  storage.*member_of(access::DataPointer{}) = c10::DataPtr(nullptr, constant, &free_constant, c10::Device(c10::kMeta));
}

void forget_constant(c10::StorageImpl& storage) {
  if (Constant* constant = extra_of(storage)) constant->value = c10::Storage();
}

}  // namespace alternator::fake
