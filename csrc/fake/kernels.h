// Computes the metadata of an operator's outputs: by its kernel, or by the next one that can.
#pragma once

#include "fake/op_table.h"
#include "fake/session.h"

#include <ATen/core/stack.h>

namespace alternator::fake {

// In its scope, fakes report the device "meta" and operators dispatch to Meta kernels. Not an IncludeDispatchKeyGuard:
// in torch 2.11 that one removes the key again, but not the bit of its backend, and real tensors would dispatch to Meta
// kernels from then on.
class AsMeta {
 public:
  AsMeta() {
    c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
    keys.included_ = keys.included_.add(c10::DispatchKey::Meta);
    keys.excluded_ = keys.excluded_.add(kFakeKey);
    c10::impl::_force_tls_local_dispatch_key_set(keys);
  }

 private:
  c10::impl::ForceDispatchKeyGuard before_;
};

// One call: its arguments are the topmost values on the stack, and outputs without a device get `device`.
struct Call {
  SessionState& session;
  Op& op;
  const c10::OperatorHandle& handle;
  c10::DispatchKeySet keys;
  torch::jit::Stack& stack;
  c10::Device device;

  c10::IValue* arguments() const { return stack.data() + (stack.size() - op.argument_count); }
  c10::IValue* outputs() const { return stack.data() + (stack.size() - op.return_count); }
};

// Replaces the arguments by the outputs: fakes.
void compute(const Call& call);

// The same by torch's FakeTensorMode, for this one operator. False if it has no result either. A data-dependent result
// throws DataDependent.
bool compute_in_fake_tensor_mode(const Call& call);

}  // namespace alternator::fake
