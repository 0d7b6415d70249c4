// FakeTensors of torch's FakeTensorMode with the properties of our fakes: the only kind that a backend may see.
#pragma once

#include "py/error.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <unordered_map>

namespace alternator::graph {

class FxExamples {
 public:
  explicit FxExamples(Borrowed fake_mode);

  // The FakeTensor of one of our fakes; the same one on every call. Shared storages stay shared.
  Ref of(const at::Tensor& fake);
  // The FakeTensor of a real tensor, as the mode itself creates it; it also represents `fake` from now on.
  Ref of_real(const at::Tensor& fake, Borrowed real);

 private:
  at::Tensor meta_copy(const at::Tensor& fake);
  Ref wrap(const at::Tensor& meta, c10::Device device);

  Ref mode_;
  std::unordered_map<const c10::TensorImpl*, Ref> examples_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;
  std::unordered_map<c10::Device, Ref> patterns_;  // the attributes of a FakeTensor on that device
};

}  // namespace alternator::graph
