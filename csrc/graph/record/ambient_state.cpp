#include "graph/record/ambient_state.h"

#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace alternator::graph {
namespace {

thread_local int flags_seen = 0;

// Whether `target` needs a separate autocast scope for a device.
bool enters_autocast(const Ambient& from, const Ambient& target, size_t device) {
  const bool cache_differs = target.autocast[device].enabled && from.autocast_cache != target.autocast_cache;
  return from.autocast[device] != target.autocast[device] || cache_differs;
}

// How many scopes must be entered. (Grad mode and default dtype are simply set.)
size_t scopes_between(const Ambient& from, const Ambient& target) {
  size_t count = from.inference != target.inference;
  for (size_t device = 0; device < kAutocastDevices; ++device) count += enters_autocast(from, target, device);
  return count;
}

}  // namespace

FlagsSeen::FlagsSeen() { flags_seen++; }
FlagsSeen::~FlagsSeen() { flags_seen--; }

Ambient Ambient::now() {
  Ambient state;
  if (flags_seen != 0) [[unlikely]]
    state.flags = fake::Flags::now();
  state.grad = c10::GradMode::is_enabled();
  state.inference = c10::InferenceMode::is_enabled();
  state.default_dtype = c10::typeMetaToScalarType(c10::get_default_dtype());
  // Autocast is off for a device exactly while its key is excluded: one test for the usual case.
  const c10::DispatchKeySet excluded = c10::impl::tls_local_dispatch_key_set().excluded_;
  if ((c10::autocast_dispatch_keyset - excluded).empty()) return state;
  const auto& devices = at::autocast::_AUTOCAST_SUPPORTED_DEVICES;
  bool any = false;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!at::autocast::is_autocast_enabled(devices[i])) continue;
    state.autocast[i] = {true, at::autocast::get_autocast_dtype(devices[i])};
    any = true;
  }
  if (any) state.autocast_cache = at::autocast::is_autocast_cache_enabled();
  return state;
}

void Ambient::apply() const {
  if (c10::GradMode::is_enabled() != grad) c10::GradMode::set_enabled(grad);
  if (c10::typeMetaToScalarType(c10::get_default_dtype()) != default_dtype)
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(default_dtype));
  const auto& devices = at::autocast::_AUTOCAST_SUPPORTED_DEVICES;
  bool any = false;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (at::autocast::is_autocast_enabled(devices[i]) != autocast[i].enabled)
      at::autocast::set_autocast_enabled(devices[i], autocast[i].enabled);
    if (autocast[i].enabled) at::autocast::set_autocast_dtype(devices[i], autocast[i].dtype);
    any = any || autocast[i].enabled;
  }
  if (any) at::autocast::set_autocast_cache_enabled(autocast_cache);
  if (flags) flags->apply();
}

void StateWalk::leave(std::vector<Step>& steps) {
  const Scope& scope = open_.back();
  steps.push_back({.kind = scope.exit, .scope = scope.number});
  // An autocast scope restores autocast only; inference mode restores grad mode too.
  const bool grad = scope.exit == StepKind::ExitInference ? scope.before.grad : current_.grad;
  const c10::ScalarType dtype = current_.default_dtype;
  const std::optional<fake::Flags> flags = current_.flags;
  current_ = scope.before;
  current_.flags = flags;
  current_.grad = grad;
  current_.default_dtype = dtype;
  open_.pop_back();
}

void StateWalk::enter(const Ambient& target, std::vector<Step>& steps) {
  if (current_.inference != target.inference) {
    steps.push_back({.kind = StepKind::EnterInference, .flag = target.inference, .scope = scopes_});
    open_.push_back({scopes_++, StepKind::ExitInference, current_});
    current_.inference = target.inference;
    current_.grad = !target.inference;
  }
  const auto& devices = at::autocast::_AUTOCAST_SUPPORTED_DEVICES;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!enters_autocast(current_, target, i)) continue;
    steps.push_back({.kind = StepKind::EnterAutocast,
                     .flag = target.autocast[i].enabled,
                     .cache = target.autocast_cache,
                     .device = devices[i],
                     .dtype = target.autocast[i].dtype,
                     .scope = scopes_});
    open_.push_back({scopes_++, StepKind::ExitAutocast, current_});
    current_.autocast[i] = target.autocast[i];
    current_.autocast_cache = target.autocast_cache;
  }
}

void StateWalk::set(const Ambient& target, std::vector<Step>& steps) {
  if (current_.grad != target.grad) {
    steps.push_back({.kind = StepKind::SetGrad, .flag = target.grad});
    current_.grad = target.grad;
  }
  if (current_.default_dtype != target.default_dtype) {
    steps.push_back({.kind = StepKind::SetDefaultDtype, .dtype = target.default_dtype});
    current_.default_dtype = target.default_dtype;
  }
  if (current_.flags != target.flags && current_.flags && target.flags) {
    for (const uint8_t index : current_.flags->steps_to(*target.flags))
      steps.push_back({.kind = StepKind::SetFlag, .index = index, .value = target.flags->values[index]});
    current_.flags = target.flags;
  }
}

std::vector<Step> StateWalk::to(const Ambient& target) {
  std::vector<Step> steps;
  if (current_ == target) return steps;
  // Leaves some scopes, then enters others: the path with the fewest steps, and among those the one that leaves most,
  // as the user's `with` statements would have.
  size_t keep = open_.size();
  size_t fewest = scopes_between(current_, target);
  for (size_t depth = open_.size(); depth-- > 0;) {
    const size_t count = open_.size() - depth + scopes_between(open_[depth].before, target);
    if (count <= fewest) {
      fewest = count;
      keep = depth;
    }
  }
  while (open_.size() > keep) leave(steps);
  enter(target, steps);
  set(target, steps);
  return steps;
}

Step StateWalk::set_grad(bool mode) {
  current_.grad = mode;
  return {.kind = StepKind::SetGrad, .flag = mode};
}

std::vector<Step> StateWalk::finish(const Ambient& target) {
  std::vector<Step> steps;
  while (!open_.empty()) leave(steps);
  set(target, steps);
  return steps;
}

}  // namespace alternator::graph
