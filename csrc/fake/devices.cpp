#include "fake/devices.h"

#include "py/forking.h"

#include <ATen/Context.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/csrc/utils/tensor_new.h>

#include <mutex>

namespace alternator::fake {
namespace {

// A build without CUDA still traces programs for it: torch only asks the guard for the current device.
[[maybe_unused]] const bool g_cuda_guard = [] {
  auto& slot = c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)];
  if (slot.load() == nullptr) slot.store(new c10::impl::NoOpDeviceGuardImpl<c10::kCUDA>());
  return true;
}();

std::mutex g_mutex;
int g_active_sessions = 0;
thread_local int t_active_sessions = 0;
SwitchedBy active_sessions() { return {g_active_sessions, t_active_sessions}; }

void expect_fakes(bool on) {
  if (!at::hasCUDA()) torch::utils::set_requires_device_init(c10::kCUDA, !on);
  torch::utils::set_only_lift_cpu_tensors(on);
}

[[maybe_unused]] const bool g_in_children = in_children([] {
  new (&g_mutex) std::mutex;
  if (active_sessions().keep_own()) expect_fakes(false);
});

}  // namespace

void session_begins() {
  const std::lock_guard lock(g_mutex);
  if (active_sessions().begin()) expect_fakes(true);
}

void session_ends() {
  const std::lock_guard lock(g_mutex);
  if (active_sessions().end()) expect_fakes(false);
}

c10::Device with_index(c10::Device device) {
  if (device.has_index() || device.is_cpu() || device.is_meta()) return device;
  const auto* guard = c10::impl::device_guard_impl_registry[static_cast<size_t>(device.type())].load();
  const c10::DeviceIndex current = guard != nullptr ? guard->getDevice().index() : c10::DeviceIndex(0);
  return c10::Device(device.type(), std::max(current, c10::DeviceIndex(0)));
}

void two_devices(c10::Device first, c10::Device second, const std::string& op) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", first, " and ",
              second, "! (when checking the arguments of ", op, ")");
}

}  // namespace alternator::fake
