// The tensors among an operator's arguments: checked, lifted where the session allows it, their common device
// determined.
#pragma once

#include "fake/devices.h"
#include "fake/op_table.h"
#include "fake/session.h"
#include "fake/storage.h"

#include <ATen/core/ivalue.h>

namespace alternator::fake {

// Scans the tensor arguments of one call.
class ArgumentScan {
 public:
  ArgumentScan(SessionState& session, const Op& op) : session_(session), op_(op) {}

  // The tensor to use in place of `tensor`; null: `tensor` itself.
  std::optional<at::Tensor> add(const at::Tensor& tensor, size_t argument) {
    const uint64_t bit = argument < 64 ? uint64_t{1} << argument : 0;
    const bool written = (op_.written_arguments & bit) != 0;
    const bool may_be_scalar = !written && (op_.cpu_scalars & bit) != 0;
    if (const FakeTensorImpl* fake = as_fake(tensor.unsafeGetTensorImpl())) [[likely]] {
      if (fake->session() != session_.id()) [[unlikely]]
        refuse_escaped();
      add_device(fake->fake_device(), may_be_scalar && fake->dim() == 0);
      (constant_of(*fake->unsafe_storage().unsafeGetStorageImpl()) != nullptr ? known_ : unknown_)++;
      return std::nullopt;
    }
    return add_real(tensor, written, may_be_scalar);
  }
  const CommonDevice& common() const { return common_; }
  // Some tensor's value is known; all tensors' values are known.
  bool any_known() const { return known_ != 0; }
  bool all_known() const { return known_ != 0 && unknown_ == 0; }

 private:
  void add_device(c10::Device device, bool scalar) {
    if (!common_.add(device, scalar && device.is_cpu()) && !op_.mixes_devices) [[unlikely]]
      two_devices(common_.device(), device, op_.name);
  }
  std::optional<at::Tensor> add_real(const at::Tensor& tensor, bool written, bool may_be_scalar);
  [[noreturn]] void refuse_escaped() const;

  SessionState& session_;
  const Op& op_;
  CommonDevice common_;
  uint32_t known_ = 0, unknown_ = 0;
};

// Calls visit(tensor, argument index) for each defined tensor in values[0..count); a returned tensor replaces it.
template <class Visit>
void replace_tensors(c10::IValue* values, size_t count, Visit&& visit) {
  for (size_t i = 0; i < count; i++) {
    c10::IValue& value = values[i];
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (tensor.defined()) {
        if (auto other = visit(tensor, i)) value = std::move(*other);
      }
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list = value.toTensorList();
      bool own = false;  // the caller may share the list: copy it before writing
      for (size_t j = 0; j < list.size(); j++) {
        const at::Tensor tensor = list[j];
        if (!tensor.defined()) continue;
        if (auto other = visit(tensor, i)) {
          if (!own) list = list.copy();
          own = true;
          list[j] = std::move(*other);
        }
      }
      if (own) value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list = value.toOptionalTensorList();
      bool own = false;
      for (size_t j = 0; j < list.size(); j++) {
        const std::optional<at::Tensor> tensor = list[j];
        if (!tensor.has_value() || !tensor->defined()) continue;
        if (auto other = visit(*tensor, i)) {
          if (!own) list = list.copy();
          own = true;
          list[j] = std::move(other);
        }
      }
      if (own) value = std::move(list);
    }
  }
}

}  // namespace alternator::fake
