// Calls into torch's FakeTensorMode. The caller holds the GIL.
#pragma once

#include "fake/kernels.h"
#include "fake/session.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/csrc/utils/pybind.h>

#include <functional>

namespace alternator::fake {

// Outside any session: FakeTensorMode handles all operators itself.
class OutsideSession {
 public:
  OutsideSession() : exclude_(kFakeKey) {}

 private:
  Inactive inactive_;
  c10::impl::ExcludeDispatchKeyGuard exclude_;
};

pybind11::object make_fake_tensor_mode(const pybind11::object& shape_env);
// The FakeTensor over `meta`, and the device of one.
at::Tensor make_fake_tensor(const pybind11::object& mode, const at::Tensor& meta, c10::Device device);
c10::Device device_of_fake_tensor(const at::Tensor& tensor);

pybind11::object call_in_mode(const pybind11::object& mode, const c10::OperatorHandle& handle,
                              const torch::jit::Stack& arguments);

// Replaces the call's arguments by `result`, each tensor converted by `back`.
void return_results(const Call& call, const pybind11::object& result,
                    const std::function<std::optional<at::Tensor>(const at::Tensor&)>& back);

// Whether FakeTensorMode's error means a data-dependent result; an unsupported operator.
bool is_data_dependent(const pybind11::error_already_set& error);
bool is_unsupported(const pybind11::error_already_set& error);

}  // namespace alternator::fake
