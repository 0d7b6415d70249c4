// The state that determines what a torch call does: grad mode, inference mode, autocast, default dtype, torch's flags.
//
// A program does not record the calls that set it (but see grad_mode_nodes.h for those of the grad mode). Each node has
// the state that it ran in, and the steps from one node's state to the next one's are computed when the program is
// exported or replayed. So it does not matter who changed the state, and a change that no node observes leaves no
// trace.
#pragma once

#include "fake/flags.h"

#include <ATen/autocast_mode.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <vector>

namespace alternator::graph {

inline constexpr size_t kAutocastDevices = std::tuple_size_v<decltype(at::autocast::_AUTOCAST_SUPPORTED_DEVICES)>;

struct Ambient {
  struct Autocast {
    bool enabled = false;
    c10::ScalarType dtype = c10::ScalarType::Undefined;  // only where enabled
    bool operator==(const Autocast&) const = default;
  };
  bool grad = true;
  bool inference = false;
  bool autocast_cache = true;  // only where some device is enabled
  c10::ScalarType default_dtype = c10::ScalarType::Float;
  std::array<Autocast, kAutocastDevices> autocast{};
  std::optional<fake::Flags> flags;  // none: no flag was set

  bool operator==(const Ambient&) const = default;
  static Ambient now();
  // Makes it the thread's state, except for inference mode, which is a scope that the caller holds.
  void apply() const;
};

enum class StepKind : uint8_t {
  SetGrad,
  EnterAutocast,
  ExitAutocast,
  EnterInference,
  ExitInference,
  SetDefaultDtype,
  SetFlag
};

// In its scope, this thread's state includes the flags.
class FlagsSeen {
 public:
  FlagsSeen();
  ~FlagsSeen();
  FlagsSeen(const FlagsSeen&) = delete;
  FlagsSeen& operator=(const FlagsSeen&) = delete;
};

struct Step {
  StepKind kind;
  bool flag = false;  // SetGrad, EnterInference: the mode; EnterAutocast: enabled
  bool cache = true;  // EnterAutocast
  c10::DeviceType device = c10::DeviceType::CPU;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  uint8_t index = 0;  // SetFlag: which, and its value
  int64_t value = 0;
  uint32_t scope = 0;  // Enter and Exit that belong together have the same number
};

// Walks from state to state as nested scopes would have.
class StateWalk {
 public:
  explicit StateWalk(const Ambient& entry) : current_(entry) {}

  // The steps that lead from the current state to `target`.
  std::vector<Step> to(const Ambient& target);
  // The program sets the grad mode, whatever it was.
  Step set_grad(bool mode);
  // Closes the open scopes and goes to `target`: the state that the program leaves behind.
  std::vector<Step> finish(const Ambient& target);

 private:
  struct Scope {
    uint32_t number;
    StepKind exit;
    Ambient before;
  };
  void leave(std::vector<Step>& steps);
  void enter(const Ambient& target, std::vector<Step>& steps);
  void set(const Ambient& target, std::vector<Step>& steps);

  Ambient current_;
  std::vector<Scope> open_;
  uint32_t scopes_ = 0;
};

}  // namespace alternator::graph
