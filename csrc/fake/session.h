// The state of a session: the fakes of real tensors and what they share.
#pragma once

#include "fake/fake.h"
#include "fake/op_table.h"
#include "fake/tensor_impl.h"

#include <c10/core/Storage.h>
#include <c10/util/flat_hash_map.h>

#include <atomic>
#include <mutex>

namespace alternator::fake {

// The device of a rule's outputs: set for the duration of its call.
extern thread_local c10::Device t_device;

// Throws if an operator's output is a kind of tensor that cannot be faked.
void refuse_other_kinds(const at::Tensor& output);

class UnbackedSizes;

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

  void record(Failure failure);
  const Failure* failure() const { return failure_ ? &*failure_ : nullptr; }
  void clear_failure() { failure_.reset(); }

  // A fake over `storage`, whose sizes and strides are still to be set.
  at::Tensor make(c10::Storage storage, c10::DispatchKeySet keys, caffe2::TypeMeta dtype, c10::Device device) const {
    return at::Tensor(c10::make_intrusive<FakeTensorImpl>(std::move(storage), keys, dtype, device, id_));
  }
  // The fake of a meta kernel's result; a fake is returned unchanged.
  at::Tensor adopt(const at::Tensor& meta, c10::Device device) const;

  // Counters that a backward pass may update from another thread: not worth an atomic read-modify-write.
  class Counter {
   public:
    void operator++(int) { value_.store(value() + 1, std::memory_order_relaxed); }
    uint64_t value() const { return value_.load(std::memory_order_relaxed); }
    void set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }

   private:
    std::atomic<uint64_t> value_{0};
  };
  struct {
    Counter operators, python_metas, fake_tensor_mode, writes, draws, acts, checks;
  } counts_;
  void count(const Op& op) {
    counts_.operators++;
    if (op.mutates) counts_.writes++;
    if (op.random) counts_.draws++;
    if (op.return_count == 0 && !op.mutates) (op.checks ? counts_.checks : counts_.acts)++;
  }

  bool unbacked_symbols = false;  // see UnbackedSymbols
  bool captures_sizes = false;    // see Session::capture_sizes()

  // torch's ShapeEnv of the unbacked symbols, and the FakeTensorMode over it. Both are created on first use.
  bool has_shape_env() const { return static_cast<bool>(shape_env_); }
  Borrowed shape_env();
  Borrowed symbolic_mode();
  // Its symbols as expressions.
  UnbackedSizes& unbacked_sizes();
  // The FakeTensor of a fake whose data determined a size. FakeTensorMode memoizes that size on its tensor: a mask that
  // is used twice selects the same number of elements each time.
  struct Seen {
    at::Tensor ours;
    uint64_t writes;                   // the session's count of writes at that time
    at::Tensor theirs;                 // undefined: FakeTensorMode has not seen it
    std::optional<c10::SymInt> count;  // how many elements are not zero, if that was asked
  };
  std::vector<Seen> seen;

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
  std::mutex mutex_;
  std::optional<Failure> failure_;
  Ref shape_env_, symbolic_mode_;
  std::unique_ptr<UnbackedSizes> unbacked_sizes_;
  ska::flat_hash_map<c10::TensorImpl*, Twin> twins_;
  ska::flat_hash_map<c10::TensorImpl*, c10::TensorImpl*> reals_;
  // Keyed by the addresses of parts of real tensors, which `twins_` keeps alive.
  ska::flat_hash_map<c10::StorageImpl*, c10::Storage> storages_;
  ska::flat_hash_map<const void*, c10::VariableVersion> versions_;
};

}  // namespace alternator::fake
