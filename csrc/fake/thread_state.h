// The thread's torch state, restored at the end of a trace: grad mode, autocast, modes, default dtype.
#pragma once

#include "fake/functorch_state.h"

#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>

#include <array>

namespace alternator::fake {

// The nesting depth of autocast: when the outermost scope ends, the cached casts of weights are dropped.
inline int autocast_nesting() {
  at::autocast::increment_nesting();
  return at::autocast::decrement_nesting();
}
inline void set_autocast_nesting(int wanted) {
  const int before = autocast_nesting();
  for (int now = before; now < wanted; now++) at::autocast::increment_nesting();
  for (int now = before; now > wanted; now--) at::autocast::decrement_nesting();
  if (before > 0 && wanted == 0) at::autocast::clear_cache();
}

// autocast's dtypes and whether it caches casts of weights: also where it is off.
struct CastSettings {
  static constexpr const auto& kDevices = at::autocast::_AUTOCAST_SUPPORTED_DEVICES;
  std::array<at::ScalarType, std::tuple_size_v<std::remove_cvref_t<decltype(kDevices)>>> dtypes;
  bool cache;

  bool operator==(const CastSettings&) const = default;
  static CastSettings now() {
    CastSettings settings{{}, at::autocast::is_autocast_cache_enabled()};
    for (size_t i = 0; i < kDevices.size(); i++) settings.dtypes[i] = at::autocast::get_autocast_dtype(kDevices[i]);
    return settings;
  }
  void apply() const {
    at::autocast::set_autocast_cache_enabled(cache);
    for (size_t i = 0; i < kDevices.size(); i++) {
      if (at::autocast::get_autocast_dtype(kDevices[i]) != dtypes[i])
        at::autocast::set_autocast_dtype(kDevices[i], dtypes[i]);
    }
  }
};

class ThreadState {
 public:
  ThreadState() : default_dtype_(c10::get_default_dtype()) {
    // An autocast scope of the caller that the trace leaves stays open: the run needs its cache.
    if (nesting_ > 0) at::autocast::increment_nesting();
  }
  ~ThreadState() {
    transforms_.restore();
    if (c10::get_default_dtype() != default_dtype_) c10::set_default_dtype(default_dtype_);
    casts_.apply();
    set_autocast_nesting(nesting_);
  }
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;

 private:
  TransformsAsBefore transforms_;  // ... and torch's other thread-local state
  caffe2::TypeMeta default_dtype_;
  CastSettings casts_ = CastSettings::now();
  int nesting_ = autocast_nesting();
};

}  // namespace alternator::fake
