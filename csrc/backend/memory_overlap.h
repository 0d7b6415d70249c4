// Memory that several inputs of a graph share.
#pragma once

#include "graph/record/program.h"

#include <vector>

namespace alternator::backend {

const c10::StorageImpl* storage_of(const at::Tensor& tensor);  // null: none
// Undefined for a torch.Generator.
at::Tensor tensor_of(Borrowed value);

// Whether two tensors over one storage have an element in common; true if that is too hard to decide.
bool have_element_in_common(const at::Tensor& one, const at::Tensor& other);

// Finds CPU memory that two values reach through different objects: tensors over different storages, or a tensor and a
// numpy array.
class Extents {
 public:
  void add(Borrowed value);
  bool overlap();

 private:
  struct Extent {
    uintptr_t begin, end;
    const c10::StorageImpl* storage;  // null: an array's memory
    auto operator<=>(const Extent&) const = default;
  };
  void add(const void* data, size_t size, const c10::StorageImpl* storage);
  std::vector<Extent> all_;
};

// Which of a graph's inputs share memory, and at which offsets. A backend that functionalizes mutations relies on it.
class Sharing {
 public:
  Sharing() = default;
  // `has_arrays`: the graph computes with numpy arrays, none of which may then overlap the memory of a tensor.
  Sharing(const std::vector<Ref>& values, const std::vector<size_t>& inputs, bool has_arrays);
  bool holds(const std::vector<Ref>& values, const std::vector<size_t>& inputs) const;

 private:
  // For each input the first one with the same storage; for those that share theirs also the storage offset.
  std::vector<size_t> first_;
  std::vector<int64_t> offsets_;
  bool has_arrays_ = false;
};

}  // namespace alternator::backend
