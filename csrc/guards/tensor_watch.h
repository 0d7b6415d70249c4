// Tensors that passed their guard once: whether any metadata that the guard checks has been written since.
//
// Checking a TensorSpec takes some fifty steps. For a tensor that is known to be the same object, it is enough that the
// memory of the metadata has not changed: the Python type, the TensorImpl, its sizes, strides, dtype, device, flags and
// dispatch keys, and the autograd metadata. That is one pass over a few words, at addresses that are known before it
// starts, so that their cache lines are fetched in parallel. A changed word does not mean that the guard fails: then
// the TensorSpec is checked.
#pragma once

#include "lift/sources/tensor_spec.h"

#include <array>
#include <vector>

namespace torch::autograd {
struct AutogradMeta;
}

namespace alternator::guards {

class TensorWatches {
 public:
  // `object` is a tensor, the same one at every check, and `spec` matches it now. `check` is the caller's.
  void add(PyObject* object, const lift::TensorSpec& spec, uint32_t check);
  // The first one from `begin` on of which something has changed, or might have: check its guard. size() if there is
  // none.
  size_t next_changed(size_t begin) const noexcept;
  // Its guard was checked, and holds.
  void renew(size_t index, const lift::TensorSpec& spec);

  size_t size() const { return watches_.size(); }
  PyObject* object(size_t index) const { return watches_[index].object; }
  uint32_t check(size_t index) const { return watches_[index].check; }

 private:
  struct Watch {
    PyObject* object;
    const c10::TensorImpl* impl;                    // null: its guard is checked each time
    const torch::autograd::AutogradMeta* autograd;  // null: it has none
    uint32_t facts;
    uint32_t check;
  };
  // The expected memory. Tensors of one kind share it. Laid out for comparison by pairs of words.
  struct alignas(64) Facts {
    alignas(16) std::array<uint64_t, 11> geometry;
    int64_t offset;
    alignas(16) std::array<uint64_t, 2> kind;
    const PyTypeObject* type;  // held by the spec
    bool has_offset;           // false: not guarded
    bool requires_grad;
    bool operator==(const Facts&) const = default;
  };
  // `impl` null: a tensor of a kind that cannot be watched.
  Watch watch(PyObject* object, const lift::TensorSpec& spec, uint32_t check);
  bool is_unchanged(const Watch& watch) const noexcept;

  std::vector<Watch> watches_;
  std::vector<Facts> facts_;
};

}  // namespace alternator::guards
