#include "backend/memory_overlap.h"

#include "graph/record/torch_types.h"
#include "lift/sources/numpy_types.h"

#include <algorithm>
#include <functional>

namespace alternator::backend {

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

at::Tensor tensor_of(Borrowed value) { return graph::is_tensor(value) ? graph::as_tensor(value) : at::Tensor(); }

bool have_element_in_common(const at::Tensor& one, const at::Tensor& other) {
  if (one.numel() == 0 || other.numel() == 0) return false;
  const auto last = [](const at::Tensor& tensor) {
    int64_t at = tensor.storage_offset();
    for (int64_t i = 0; i < tensor.dim(); i++) at += (tensor.size(i) - 1) * tensor.stride(i);
    return at;
  };
  if (last(one) < other.storage_offset() || last(other) < one.storage_offset()) return false;
  if (one.strides() != other.strides()) return true;
  // Views of one tensor: is there an element of the one whose address is also reached by the other?
  std::vector<int64_t> order(static_cast<size_t>(one.dim()));
  for (size_t i = 0; i < order.size(); i++) order[i] = static_cast<int64_t>(i);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return one.stride(a) > one.stride(b); });
  int tries = 1000;
  const std::function<bool(size_t, int64_t)> reaches = [&](size_t at, int64_t distance) {
    if (tries-- <= 0) return true;
    if (at == order.size()) return distance == 0;
    const int64_t stride = one.stride(order[at]);
    if (stride == 0) return reaches(at + 1, distance);
    int64_t below = 0, above = 0;  // distances that the smaller strides can cover
    for (size_t i = at + 1; i < order.size(); i++) {
      below -= (other.size(order[i]) - 1) * one.stride(order[i]);
      above += (one.size(order[i]) - 1) * one.stride(order[i]);
    }
    const int64_t over = distance - above;
    const int64_t fewest = over > 0 ? (over + stride - 1) / stride : -(-over / stride);
    for (int64_t steps = std::max(fewest, 1 - other.size(order[at])); steps < one.size(order[at]); steps++) {
      const int64_t left = distance - steps * stride;
      if (left < below) break;
      if (reaches(at + 1, left)) return true;
    }
    return false;
  };
  return reaches(0, other.storage_offset() - one.storage_offset());
}

void Extents::add(Borrowed value) {
  if (lift::is_array(value.get())) {
    const lift::ArrayFields& fields = lift::fields_of(value);  // a guard ensures that its strides are not negative
    Py_ssize_t size = lift::element_size(value);
    for (int i = 0; i < fields.dimensions; i++) size += (fields.shape[i] - 1) * fields.strides[i];
    add(fields.data, static_cast<size_t>(size), nullptr);
    return;
  }
  const at::Tensor tensor = tensor_of(value);
  const c10::StorageImpl* storage = storage_of(tensor);
  if (storage != nullptr && tensor.device().is_cpu()) add(storage->data(), storage->nbytes(), storage);
}

bool Extents::overlap() {
  std::sort(all_.begin(), all_.end());
  uintptr_t tensors = 0, arrays = 0;  // where the memory of the tensors / arrays seen so far ends
  const c10::StorageImpl* before = nullptr;
  for (const Extent& extent : all_) {
    if (extent.storage != nullptr && extent.storage == before) continue;
    if (extent.begin < tensors || (extent.storage != nullptr && extent.begin < arrays)) return true;
    uintptr_t& last = extent.storage != nullptr ? tensors : arrays;
    last = std::max(last, extent.end);
    if (extent.storage != nullptr) before = extent.storage;
  }
  return false;
}

void Extents::add(const void* data, size_t size, const c10::StorageImpl* storage) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  if (size > 0) all_.push_back({begin, begin + size, storage});
}

Sharing::Sharing(const std::vector<Ref>& values, const std::vector<size_t>& inputs, bool has_arrays)
    : first_(inputs.size()), offsets_(inputs.size(), -1), has_arrays_(has_arrays) {
  for (size_t i = 0; i < inputs.size(); i++) {
    const at::Tensor tensor = tensor_of(values[inputs[i]]);
    first_[i] = i;
    for (size_t before = 0; before < i && first_[i] == i; before++) {
      const at::Tensor other = tensor_of(values[inputs[before]]);
      if (storage_of(tensor) == nullptr || storage_of(tensor) != storage_of(other)) continue;
      first_[i] = before;
      offsets_[i] = tensor.storage_offset();
      offsets_[before] = other.storage_offset();
    }
  }
}

bool Sharing::holds(const std::vector<Ref>& values, const std::vector<size_t>& inputs) const {
  if (has_arrays_) {
    Extents extents;
    for (size_t position : inputs) extents.add(values[position]);
    if (extents.overlap()) return false;
  }
  std::vector<const c10::StorageImpl*> alone;  // storages that no other input may share
  alone.reserve(first_.size());
  for (size_t i = 0; i < first_.size(); i++) {
    const at::Tensor tensor = tensor_of(values[inputs[i]]);
    const c10::StorageImpl* storage = storage_of(tensor);
    if (offsets_[i] >= 0 && tensor.storage_offset() != offsets_[i]) return false;
    if (first_[i] != i) {
      if (storage != storage_of(tensor_of(values[inputs[first_[i]]]))) return false;
    } else if (storage != nullptr) {
      alone.push_back(storage);
    }
  }
  std::sort(alone.begin(), alone.end());
  return std::adjacent_find(alone.begin(), alone.end()) == alone.end();
}

}  // namespace alternator::backend
