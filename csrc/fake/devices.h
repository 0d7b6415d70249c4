// The device of an operator's outputs, derived from its tensors as eager does.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace alternator::fake {

// "cuda" means the current CUDA device: 0 where there is none.
c10::Device with_index(c10::Device device);

// While at least one session is active, a build without CUDA may create "cuda" fakes (torch would initialize CUDA
// first), and torch.tensor(..., device=...) passes its data to us before it moves them.
void session_begins();
void session_ends();

class CommonDevice {
 public:
  // `scalar`: a 0-d CPU tensor, which any device accepts and which does not determine the device. False if the two
  // devices are incompatible.
  bool add(c10::Device device, bool scalar) {
    if (!found_) {
      device_ = device;
      found_ = true;
      scalar_ = scalar;
    } else if (device == device_) {
      scalar_ = scalar_ && scalar;
    } else if (scalar_) {
      device_ = device;
      scalar_ = scalar;
    } else {
      return scalar;
    }
    return true;
  }
  bool found() const { return found_; }
  c10::Device device() const { return device_; }
  void set(c10::Device device) {
    device_ = device;
    found_ = true;
  }

 private:
  c10::Device device_ = c10::Device(c10::kCPU);
  bool found_ = false, scalar_ = false;
};

[[noreturn]] void two_devices(c10::Device first, c10::Device second, const std::string& op);

}  // namespace alternator::fake
