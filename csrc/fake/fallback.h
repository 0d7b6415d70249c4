// The boxed path of an operator on fakes, and the state that meta kernels run in.
#pragma once

#include "fake/op_table.h"
#include "fake/tensor_impl.h"

#include <ATen/core/stack.h>

namespace alternator::fake {

// While this lives, fakes say that they are on "meta" and operators go to Meta kernels.
class AsMeta {
 public:
  AsMeta() : exclude_(kFakeKey), include_(c10::DispatchKey::Meta) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard exclude_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

void run_boxed(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace alternator::fake
