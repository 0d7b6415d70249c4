// The ambient state of a call: grad mode, autocast, mode stacks, defaults. Captured when a trace starts; an entry is
// valid in that state only.
#pragma once

#include "fake/flags.h"
#include "guards/pin.h"

#include <ATen/autocast_mode.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace alternator::guards {

struct AutocastState {
  static constexpr size_t kDevices = at::autocast::_AUTOCAST_SUPPORTED_DEVICES.size();
  c10::DispatchKeySet off;  // the keys of the devices for which it is off
  bool cache = true;
  std::array<c10::ScalarType, kDevices> dtypes{};

  bool operator==(const AutocastState&) const = default;
  static AutocastState now(c10::DispatchKeySet excluded);  // `excluded`: the excluded dispatch keys of this thread
};

class AmbientGuard {
 public:
  // The current state of this thread and of the process.
  static AmbientGuard capture();

  // Guards these torch flags, too.
  void add_flags(const fake::Flags& flags, uint8_t groups) { flags_ = flags, flag_groups_ = groups; }

  bool matches() const noexcept;
  // "the grad mode is on, not off"; empty if everything matches.
  std::string mismatch() const;
  // All that is checked, one line each.
  std::vector<std::string> texts() const;

  template <class Visit>
  void each_object(Visit&& visit) {
    for (Modes* modes : {&function_modes_, &dispatch_modes_}) {
      for (Mode& mode : *modes) mode.pin.each_object(visit), visit(mode.type);
    }
  }

 private:
  // A mode that is active around the call. `with torch.device(...)` makes a new object each time: compared by device.
  struct Mode {
    Pin pin;
    Ref type;
    std::optional<c10::Device> device;
  };
  using Modes = std::vector<Mode>;
  static Mode describe(PyObject* mode);
  static bool is(const Mode& mode, PyObject* object);
  static std::string show(const Mode& mode);
  bool flags_match() const noexcept;
  bool function_modes_match() const;
  bool dispatch_modes_match() const;

#define ALT_AMBIENT(field, type, expression, words) type field##_{};
#include "guards/ambient.def"
#undef ALT_AMBIENT
  Modes function_modes_, dispatch_modes_;
  fake::Flags flags_;
  uint8_t flag_groups_ = 0;
};

}  // namespace alternator::guards
