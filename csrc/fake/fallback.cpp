// Every operator on fakes that has no unboxed fast path comes here, as does every factory function of an active session.
#include "fake/fallback.h"

#include "fake/arguments.h"
#include "fake/errors.h"
#include "fake/storage.h"

#include <c10/util/SmallVector.h>
#include <torch/library.h>

namespace alternator::fake {
namespace {

using torch::jit::Stack;

SessionState& session_for(const Op& op) {
  if (SessionState* session = SessionState::current()) [[likely]] return *session;
  fail(FailureKind::Escaped, op.name, "a fake tensor is used outside its trace");
}

// Boolean masks make the shape depend on data; integer indices do not.
bool index_is_dynamic(const c10::IValue& indices) {
  for (const std::optional<at::Tensor> index : indices.toOptionalTensorList()) {
    if (index.has_value() && index->defined() && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte)) return true;
  }
  return false;
}

// Calls a kernel that works on meta tensors: fakes call themselves "meta", nested operators go to Meta kernels.
void call_as_meta(const Op& op, const c10::KernelFunction& kernel, const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  Stack& stack) {
  c10::SmallVector<AllowAddresses, 4> addresses;
  if (op.mutates) {
    replace_tensors(&stack[stack.size() - op.argument_count], op.argument_count, [&](const at::Tensor& tensor, size_t) -> std::optional<at::Tensor> {
      if (as_fake(tensor) != nullptr) {
        c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
        if (data_forbidden(*storage)) addresses.emplace_back(storage);
      }
      return std::nullopt;
    });
  }
  const AsMeta as_meta;
  kernel.callBoxed(handle, keys, &stack);
}

}  // namespace

void run_boxed(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack* stack_pointer) {
  Stack& stack = *stack_pointer;
  Op& op = op_of(handle);
  SessionState& session = session_for(op);
  session.counts_.operators++;
  session.counts_.writes += op.mutates;
  session.counts_.draws += op.random;
  session.counts_.acts += op.return_count == 0 && !op.mutates;
  const size_t begin = stack.size() - op.argument_count;

  ArgumentScan scan(session, op);
  replace_tensors(stack.data() + begin, op.argument_count, [&](const at::Tensor& tensor, size_t i) {
    return scan.add(tensor, i < 64 && (op.written_arguments >> i & 1) != 0);
  });
  c10::Device device = scan.common().device();

  if (op.data_dependent) fail(FailureKind::DataDependent, op.name, "the result depends on the data of a tensor");
  if (op.dynamic_shape && !(op.is_index && !index_is_dynamic(stack[begin + 1])))
    fail(FailureKind::DataDependent, op.name, "the shape of the result depends on the data of a tensor");

  const KernelKind kind = op.kind.load(std::memory_order_relaxed);
  if (op.device_argument >= 0) {
    c10::IValue& argument = stack[begin + op.device_argument];
    if (argument.isDevice()) device = with_index(argument.toDevice());
    const bool takes_meta = kind == KernelKind::Meta || kind == KernelKind::PythonMeta || (kind == KernelKind::Composite && op.mutates);
    if (takes_meta) {
      if (argument.isDevice() || !scan.common().found()) argument = c10::Device(c10::kMeta);
    }
  }

  switch (kind) {
    case KernelKind::Rule:
      op.kernel.callBoxed(handle, keys, stack_pointer);
      return;
    case KernelKind::Meta:
      call_as_meta(op, op.kernel, handle, keys, stack);
      break;
    case KernelKind::PythonMeta:
      session.counts_.python_metas++;
      call_as_meta(op, op.python_meta, handle, keys, stack);
      break;
    case KernelKind::Composite:
      if (op.mutates) {
        call_as_meta(op, op.kernel, handle, keys, stack);
      } else {
        const c10::impl::IncludeDispatchKeyGuard still_fake(kFakeKey);
        op.kernel.callBoxed(handle, keys, stack_pointer);
      }
      break;
    case KernelKind::Implicit:
      op.kernel.callBoxed(handle, keys, stack_pointer);
      break;
    case KernelKind::None:
      fail(FailureKind::Unsupported, op.name, "no meta kernel");
  }
  replace_tensors(stack.data() + (stack.size() - op.return_count), op.return_count,
                  [&](const at::Tensor& tensor, size_t) -> std::optional<at::Tensor> {
                    if (as_fake(tensor) != nullptr) return std::nullopt;
                    return session.adopt(tensor, device);
                  });
}

TORCH_LIBRARY_IMPL(_, Fake, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_boxed>()); }

}  // namespace alternator::fake
