#include "fake/kernels.h"

#include "fake/constants.h"
#include "fake/error_type.h"
#include "fake/op_arguments.h"
#include "fake/storage.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/util/SmallVector.h>

#include <cstring>

namespace alternator::fake {
namespace {

using torch::jit::Stack;

// StorageImpl's message when a kernel accesses the data of a fake.
constexpr const char* kDataAccess = "Cannot access data pointer of Storage that is invalid";
// The dispatcher's message when a kernel calls an operator that has no Meta kernel.
constexpr const char* kNoMetaKernel = "there was no fake impl or Meta kernel registered";
constexpr const char* kNoKernel = "Could not run 'aten::";

bool contains(const char* text, const char* part) { return std::strstr(text, part) != nullptr; }

// A C++ kernel that needs data, or that calls an operator without a Meta kernel: the next kind of kernel may work.
bool is_no_answer(const c10::Error& error) {
  const char* text = error.what_without_backtrace();
  return contains(text, kDataAccess) || contains(text, kNoMetaKernel) || contains(text, kNoKernel);
}

void allow_addresses(const Call& call, AllowAddresses& allowed) {
  replace_tensors(call.arguments(), call.op.argument_count,
                  [&](const at::Tensor& tensor, size_t) -> std::optional<at::Tensor> {
                    if (as_fake(tensor) != nullptr)
                      allowed.add(*tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
                    return std::nullopt;
                  });
}

void call_as_meta(const Call& call, const c10::KernelFunction& kernel) {
  if (call.op.device_argument >= 0) {
    c10::IValue& argument = call.arguments()[call.op.device_argument];
    if (!argument.isNone() || !call.op.has_tensor_arguments) argument = c10::Device(c10::kMeta);
  }
  // The call's arguments are off the stack while the kernel runs: `saved` in compute() keeps their storages alive.
  AllowAddresses addresses;
  if (call.op.mutates || call.op.compares_addresses.load(std::memory_order_relaxed)) allow_addresses(call, addresses);
  const AsMeta as_meta;
  kernel.callBoxed(call.handle, call.keys, &call.stack);
}

bool call_meta(const Call& call) {
  if (call.op.mutates || call.op.compares_addresses.load(std::memory_order_relaxed)) {
    call_as_meta(call, call.op.kernel);
    return true;
  }
  const c10::SmallVector<c10::IValue, 8> saved(call.arguments(), call.arguments() + call.op.argument_count);
  const size_t begin = call.stack.size() - call.op.argument_count;
  try {
    call_as_meta(call, call.op.kernel);
    return true;
  } catch (const c10::Error& error) {
    if (!contains(error.what_without_backtrace(), kDataAccess)) throw;
  }
  // Retry with addresses: a kernel may only need to know whether two tensors overlap.
  call.op.compares_addresses.store(true, std::memory_order_relaxed);
  call.stack.resize(begin);
  call.stack.insert(call.stack.end(), saved.begin(), saved.end());
  call_as_meta(call, call.op.kernel);
  return true;
}

void call_as_fake(const Call& call) {
  const c10::impl::IncludeDispatchKeyGuard still_fake(kFakeKey);
  call.op.kernel.callBoxed(call.handle, call.keys, &call.stack);
}

// Python kernels call torch functions: these are not the program's calls, and no mode may see them.
class NoTorchFunction {
 public:
  NoTorchFunction() : before_(at::impl::PythonTorchFunctionTLS::get_disabled_state()) {
    at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED);
  }
  ~NoTorchFunction() { at::impl::PythonTorchFunctionTLS::set_disabled_state(before_); }
  NoTorchFunction(const NoTorchFunction&) = delete;
  NoTorchFunction& operator=(const NoTorchFunction&) = delete;

 private:
  at::impl::TorchFunctionDisabledState before_;
};

bool call_fake_tensor_mode(const Call& call) {
  const NoTorchFunction hidden;
  return compute_in_fake_tensor_mode(call);
}

bool call_python_meta(const Call& call) {
  const NoTorchFunction hidden;
  // Python kernels compare devices: a wrapped number must report "meta" like the others.
  replace_tensors(call.arguments(), call.op.argument_count,
                  [&](const at::Tensor& tensor, size_t) -> std::optional<at::Tensor> {
                    if (as_fake(tensor) != nullptr) return std::nullopt;
                    return make_constant(call.session, tensor);
                  });
  try {
    call_as_meta(call, call.op.python_meta);
  } catch (python_error& error) {
    error.persist();
    // A kernel registered with torch.library.register_fake requested a data-dependent size.
    if (contains(error.what(), "data-dependent shape"))
      fail(FailureKind::DataDependent, call.op.name, "the shape of the result depends on the data of a tensor");
    if (contains(error.what(), kNoMetaKernel) || contains(error.what(), kNoKernel)) return false;
    throw;
  }
  return true;
}

// Runs one kind of kernel; false if it has no result (the stack is then undefined from the first argument on).
bool attempt(const Call& call, KernelKind kind, std::optional<Failure>& wanted_data) {
  try {
    switch (kind) {
      case KernelKind::Rule:
        break;
      case KernelKind::Meta:
        return call_meta(call);
      case KernelKind::Composite:
        // A view aliases the tensor it was made from; a mutating operator must find the original argument tensors.
        if (call.op.returns_view || call.op.mutates)
          call_as_meta(call, call.op.kernel);
        else
          call_as_fake(call);
        return true;
      case KernelKind::Implicit:
        call_as_fake(call);
        return true;
      case KernelKind::PythonMeta:
        if (!call.op.python_meta.isValid()) return false;
        call.session.counts_.python_metas++;
        return call_python_meta(call);
      case KernelKind::None:
        call.session.counts_.fake_tensor_mode++;
        return call_fake_tensor_mode(call);
    }
  } catch (const c10::Error& error) {
    if (!is_no_answer(error)) throw;
  } catch (const Error& error) {
    // A composite requested a value in between (`.item()`): a Python kernel may do without it.
    if (error.failure().kind != FailureKind::DataDependent || kind > KernelKind::Implicit) throw;
    wanted_data = error.failure();
  }
  return false;
}

// The next kind of kernel to try after one without a result.
KernelKind next(KernelKind kind) { return kind < KernelKind::PythonMeta ? KernelKind::PythonMeta : KernelKind::None; }

KernelKind first(const Call& call) {
  const KernelKind kind = call.op.kind.load(std::memory_order_relaxed);
  if (!call.op.asks_device || call.device.is_cuda()) return kind;
  if (call.device.is_meta()) return KernelKind::PythonMeta;  // as in eager
  const bool answers = kind == KernelKind::Rule ? call.device.is_cpu() : kind != KernelKind::PythonMeta;
  return answers ? kind : KernelKind::None;
}

// Each output of a foreach operator is on the device of its tensor in the first list.
std::vector<c10::Device> devices_of_list(c10::ArrayRef<c10::IValue> arguments) {
  std::vector<c10::Device> devices;
  for (const c10::IValue& argument : arguments) {
    if (!argument.isTensorList()) continue;
    for (const at::Tensor& tensor : argument.toTensorVector()) devices.push_back(tensor.device());
    break;
  }
  return devices;
}

}  // namespace

void compute(const Call& call) {
  KernelKind kind = first(call);
  if (kind == KernelKind::Rule) {
    t_device = call.device;
    call.op.kernel.callBoxed(call.handle, call.keys, &call.stack);
    return;
  }
  const c10::SmallVector<c10::IValue, 8> saved(call.arguments(), call.arguments() + call.op.argument_count);
  const size_t begin = call.stack.size() - call.op.argument_count;
  std::optional<Failure> wanted_data;
  while (!attempt(call, kind, wanted_data)) {
    if (kind == KernelKind::None) {
      if (wanted_data) throw Error(*wanted_data);
      fail(FailureKind::Unsupported, call.op.name, "no meta kernel");
    }
    kind = next(kind);
    call.stack.resize(begin);
    call.stack.insert(call.stack.end(), saved.begin(), saved.end());
  }
  // The next call starts with the kind that worked.
  if (kind == KernelKind::PythonMeta && !call.op.asks_device) call.op.kind.store(kind, std::memory_order_relaxed);
  const std::vector<c10::Device> devices = call.op.is_foreach ? devices_of_list(saved) : std::vector<c10::Device>();
  size_t index = 0;
  replace_tensors(call.outputs(), call.op.return_count,
                  [&](const at::Tensor& tensor, size_t) -> std::optional<at::Tensor> {
                    const c10::Device device = index < devices.size() ? devices[index] : call.device;
                    index++;
                    if (as_fake(tensor) != nullptr) return std::nullopt;
                    return call.session.adopt(tensor, device);
                  });
}

}  // namespace alternator::fake
