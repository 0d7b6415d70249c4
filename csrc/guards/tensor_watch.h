// Tensors that were right once: whether anything that a guard asks of them has been written since.
//
// A TensorSpec is asked in some fifty steps. For a tensor that is known to be the same object, it is enough that the
// memory in which the answers lie has not changed: the Python type, the TensorImpl, its sizes, strides, dtype, device,
// flags and dispatch keys, and what the autograd metadata say. That is one pass over a few words, at addresses that are
// known before it starts, so that their cache lines are fetched side by side.
// Another word does not mean that the guard fails: then the TensorSpec is asked.
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
  // `object` is a tensor, the same one whenever it is looked at, and `spec` holds of it now. `check` is the caller's.
  void add(PyObject* object, const lift::TensorSpec& spec, uint32_t check);
  // The first one from `begin` on of which something has changed, or might have: its guard is to be asked.
  // size() if there is none.
  size_t next_changed(size_t begin) const noexcept;
  // Its guard was asked, and holds.
  void renew(size_t index, const lift::TensorSpec& spec);

  size_t size() const { return watches_.size(); }
  PyObject* object(size_t index) const { return watches_[index].object; }
  uint32_t check(size_t index) const { return watches_[index].check; }

 private:
  struct Watch {
    PyObject* object;
    const c10::TensorImpl* impl;                    // null: its guard is asked each time
    const torch::autograd::AutogradMeta* autograd;  // null: it has none
    uint32_t facts;
    uint32_t check;
  };
  // What lies there. Tensors of one kind share it. What is compared two words at a time lies so that it can be.
  struct alignas(64) Facts {
    alignas(16) std::array<uint64_t, 11> geometry;
    int64_t offset;
    alignas(16) std::array<uint64_t, 2> kind;
    const PyTypeObject* type;  // held by the spec
    bool has_offset;           // false: nobody asked
    bool requires_grad;
    bool operator==(const Facts&) const = default;
  };
  // Null in `impl`: a tensor of a kind that cannot be watched.
  Watch watch(PyObject* object, const lift::TensorSpec& spec, uint32_t check);
  bool is_unchanged(const Watch& watch) const noexcept;

  std::vector<Watch> watches_;
  std::vector<Facts> facts_;
};

}  // namespace alternator::guards
