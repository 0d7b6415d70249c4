// Handles every operator on fakes that has no unboxed fast path, and every factory function of an active session.
#include "fake/fallback.h"

#include "fake/constants.h"
#include "fake/counted_elements.h"
#include "fake/error_type.h"
#include "fake/item_request.h"
#include "fake/kernels.h"
#include "fake/op_arguments.h"
#include "fake/stand_ins.h"
#include "fake/unbacked_ops.h"

#include <torch/library.h>

namespace alternator::fake {
namespace {

using torch::jit::Stack;

thread_local const c10::TensorImpl* t_asked = nullptr;

SessionState& session_for(const Op& op) {
  if (SessionState* session = SessionState::current()) [[likely]]
    return *session;
  fail(FailureKind::Escaped, op.name, "a fake tensor is used outside its trace");
}

// Boolean masks make the shape data-dependent; integer indices do not.
bool index_is_dynamic(const c10::IValue& indices) {
  for (const std::optional<at::Tensor> index : indices.toOptionalTensorList()) {
    if (index.has_value() && index->defined() &&
        (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte))
      return true;
  }
  return false;
}

// As index and index_put check their arguments in eager.
void check_indices(const Call& call) {
  const c10::IValue* arguments = call.arguments();
  if (!arguments[1].isOptionalTensorList()) return;
  const at::Tensor& self = arguments[0].toTensor();
  for (const std::optional<at::Tensor> index : arguments[1].toOptionalTensorList()) {
    if (!index.has_value() || !index->defined()) continue;
    TORCH_CHECK(index->device().is_cpu() || index->device() == self.device(),
                "indices should be either on cpu or on the same device as the indexed tensor (", self.device(), ")");
  }
  if (call.op.is_index || call.op.argument_count < 3 || !arguments[2].isTensor()) return;
  const at::Tensor& values = arguments[2].toTensor();
  if (values.dim() != 0 && values.device() != self.device()) two_devices(self.device(), values.device(), call.op.name);
}

bool depends_on_data(const Call& call) {
  if (call.op.data_dependent) return true;
  if (!call.op.dynamic_shape) return false;
  if (call.op.is_index) return index_is_dynamic(call.arguments()[1]);
  return !(call.op.counts_known && !call.arguments()[1].isNone());
}

// Meta kernels do not handle quantized tensors, and return the type that went in.
void refuse_quantized(const Call& call) {
  if (call.op.dtype_argument < 0) return;
  const c10::IValue& argument = call.arguments()[call.op.dtype_argument];
  if (argument.isInt() && c10::isQIntType(argument.toScalarType())) [[unlikely]]
    fail(FailureKind::Unsupported, call.op.name, "a quantized tensor cannot be faked");
}

void run(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack* stack) {
  Op& op = op_of(handle);
  SessionState& session = session_for(op);
  session.count(op);
  Call call{session, op, handle, keys, *stack, c10::Device(c10::kCPU)};
  if (op.is_lift) [[unlikely]] {
    lift_constant(call);
    return;
  }
  if (!op.has_tensors) [[unlikely]] {
    // No tensors are involved: profiler ranges, flags, and the like.
    const Inactive inactive;
    const c10::impl::ExcludeDispatchKeyGuard exclude(kFakeKey);
    handle.callBoxed(*stack);
    return;
  }

  refuse_quantized(call);
  if (op.takes_objects) [[unlikely]]
    fail(FailureKind::Unsupported, op.name, "it is given an object whose state cannot be seen");
  ArgumentScan scan(session, op);
  replace_tensors(call.arguments(), op.argument_count,
                  [&](const at::Tensor& tensor, size_t i) { return scan.add(tensor, i); });
  call.device = scan.common().device();
  if (op.device_argument >= 0) {
    const c10::IValue& argument = call.arguments()[op.device_argument];
    if (argument.isDevice()) call.device = with_index(argument.toDevice());
  }

  if (op.takes_indices) check_indices(call);

  if (depends_on_data(call)) [[unlikely]] {
    if (scan.all_known() && evaluate(call)) return;
    if (session.captures_sizes && !op.data_dependent) {
      if (!compute_counted(call)) compute_symbolically(call);
      return;
    }
    const bool is_number = op.name == "aten::_local_scalar_dense" || op.name == "aten::item";
    t_asked = is_number ? call.arguments()[0].toTensor().unsafeGetTensorImpl() : nullptr;
    fail(FailureKind::DataDependent, op.name,
         op.data_dependent ? "the result depends on the data of a tensor"
                           : "the shape of the result depends on the data of a tensor");
  }
  if (is_symbolic(call)) [[unlikely]] {
    forget_written(call);
    if (!compute_with_stand_ins(call)) compute_symbolically(call);
    return;
  }
  if (scan.any_known()) [[unlikely]] {
    compute_with_constants(call, scan.all_known());
    return;
  }
  compute(call);
}

}  // namespace

const c10::TensorImpl* last_asked() { return t_asked; }

void run_boxed(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack* stack) {
  const OutermostCall call;
  try {
    run(handle, keys, stack);
  } catch (const Error& error) {
    if (!error.failure().op.empty()) {
      call.failed(error);
      throw;
    }
    Failure named = error.failure();
    named.op = op_of(handle).name;
    const Error complete(std::move(named));
    call.failed(complete);
    throw complete;
  }
}

TORCH_LIBRARY_IMPL(_, Fake, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_boxed>()); }

}  // namespace alternator::fake
